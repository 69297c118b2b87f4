"""Inpainting: a part of a picture drawn anew. White in the mask is what is drawn, black is kept.

Any Stable Diffusion can do it; those made for it, with nine input channels, do it better.

    python inpaint.py photo.jpg mask.png "a red tulip"
"""

import argparse

import torch
from diffusers import StableDiffusionInpaintPipeline
from PIL import Image

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("image", help="the picture to change")
parser.add_argument("mask", help="white where it is drawn anew, black where it is kept")
parser.add_argument("prompt", nargs="?", default="a red tulip")
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-inpainting", help="a folder or a hub id")
parser.add_argument("--size", default="1024", help="512, or 512x768 for width x height")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--out", default="inpaint.png")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe = StableDiffusionInpaintPipeline.from_pretrained(args.model, dtype=dtype).to(device)
patch = todome.apply(pipe, todome.Downsample(args.factor))

width, height = map(int, (args.size.split("x") * 2)[:2])
image = Image.open(args.image).convert("RGB").resize((width, height))
mask = Image.open(args.mask).convert("L").resize((width, height))
asked = {"width": width, "height": height, "num_inference_steps": args.steps}
noise = torch.Generator().manual_seed(0)
picture = pipe(args.prompt, image=image, mask_image=mask, **asked, generator=noise).images[0]
Image.composite(picture, image, mask).save(args.out)  # what is kept is kept to the pixel
print(patch, f"Picture: {args.out}", sep="\n")
