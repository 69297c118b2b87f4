"""SDXL with a factor for each of its two levels: six in seven of its layers are at the second one.

At 1024 pixels there is little to gain, whatever the factors: docs/speed.md says how much at which size.

    python sdxl.py "a lighthouse at dusk" --size 2048 --factor 4 2
"""

import argparse

import torch
from diffusers import StableDiffusionXLPipeline

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("prompt", nargs="?", default="a lighthouse at dusk")
parser.add_argument("--model", default="stabilityai/stable-diffusion-xl-base-1.0", help="a folder or a hub id")
parser.add_argument("--size", default="1536", help="1024, or 1024x1536 for width x height")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument(
    "--factor", type=int, nargs="+", default=[3, 2], help="of level 1, which is the finest, and level 2"
)
parser.add_argument("--out", default="sdxl.png")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe = StableDiffusionXLPipeline.from_pretrained(args.model, dtype=dtype).to(device)
patch = todome.apply(pipe, todome.Downsample(tuple(args.factor)))

width, height = map(int, (args.size.split("x") * 2)[:2])
noise = torch.Generator().manual_seed(0)
picture = pipe(args.prompt, width=width, height=height, num_inference_steps=args.steps, generator=noise).images[0]
picture.save(args.out)
print(patch, f"Picture: {args.out}", sep="\n")
