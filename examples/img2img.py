"""Image to image: a picture made from another one. Of 25 steps with strength 0.6 only 15 are run: todome counts those.

python img2img.py photo.jpg "an oil painting" --strength 0.6
"""

import argparse

import torch
from diffusers import StableDiffusionImg2ImgPipeline
from PIL import Image

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("image", help="the picture to begin with")
parser.add_argument("prompt", nargs="?", default="an oil painting")
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--size", default="1024", help="512, or 512x768 for width x height")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--strength", type=float, default=0.6, help="how much may change, from 0 to 1")
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--out", default="img2img.png")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe = StableDiffusionImg2ImgPipeline.from_pretrained(args.model, dtype=dtype).to(device)
patch = todome.apply(pipe, todome.Downsample(args.factor))

width, height = map(int, (args.size.split("x") * 2)[:2])
start = Image.open(args.image).convert("RGB").resize((width, height))
asked = {"strength": args.strength, "num_inference_steps": args.steps, "generator": torch.Generator().manual_seed(0)}
picture = pipe(args.prompt, image=start, **asked).images[0]
picture.save(args.out)
print(patch, f"Picture: {args.out}", sep="\n")
