"""Stable Diffusion 1.5 at a size where attention is most of the work. One line is todome's.

python sd15.py "a lighthouse at dusk" --size 2048 --factor 4
"""

import argparse

import torch
from diffusers import StableDiffusionPipeline

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("prompt", nargs="?", default="a lighthouse at dusk")
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--size", default="1024", help="512, or 512x768 for width x height")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--out", default="sd15.png")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe = StableDiffusionPipeline.from_pretrained(args.model, dtype=dtype).to(device)
patch = todome.apply(pipe, todome.Downsample(args.factor))  # todome.apply(pipe) chooses the factor by the size

width, height = map(int, (args.size.split("x") * 2)[:2])
noise = torch.Generator().manual_seed(0)
picture = pipe(args.prompt, width=width, height=height, num_inference_steps=args.steps, generator=noise).images[0]
picture.save(args.out)
print(patch, f"Picture: {args.out}", sep="\n")
