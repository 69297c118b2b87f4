"""ControlNet: a picture that follows edges, a pose or a depth map. The ControlNet is reduced together with the UNet.

python controlnet.py edges.png "a lighthouse at dusk"
"""

import argparse

import torch
from diffusers import ControlNetModel, StableDiffusionControlNetPipeline
from PIL import Image

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("control", help="the picture to follow, of the kind that the ControlNet was trained on")
parser.add_argument("prompt", nargs="?", default="a lighthouse at dusk")
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--controlnet", default="lllyasviel/control_v11p_sd15_canny", help="a folder or a hub id")
parser.add_argument("--size", default="1024", help="512, or 512x768 for width x height")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--out", default="controlnet.png")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
controlnet = ControlNetModel.from_pretrained(args.controlnet, dtype=dtype)
pipe = StableDiffusionControlNetPipeline.from_pretrained(args.model, controlnet=controlnet, dtype=dtype).to(device)
patch = todome.apply(pipe, todome.Downsample(args.factor))

width, height = map(int, (args.size.split("x") * 2)[:2])
control = Image.open(args.control).convert("RGB").resize((width, height))
asked = {"width": width, "height": height, "num_inference_steps": args.steps}
picture = pipe(args.prompt, image=control, **asked, generator=torch.Generator().manual_seed(0)).images[0]
picture.save(args.out)
print(patch, f"Picture: {args.out}", sep="\n")
