"""A hires fix: a small picture for the composition, then a large one made from it, with attention on fewer tokens.

Large pictures drawn at once tend to show everything twice. Most of the time goes into the second pass.

    python hires.py "a bed of red tulips" --size 1024
"""

import argparse

import torch
from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionPipeline

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("prompt", nargs="?", default="a bed of red tulips")
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--size", default="1024", help="of the large picture: 1024, or 1024x1536 for width x height")
parser.add_argument("--scale", type=int, default=2, help="how many times as wide and high it is as the small one")
parser.add_argument("--strength", type=float, default=0.6, help="how much the second pass may change, from 0 to 1")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--out", default="hires.png")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
first = StableDiffusionPipeline.from_pretrained(args.model, dtype=dtype).to(device)
second = StableDiffusionImg2ImgPipeline.from_pipe(first, dtype=dtype)  # the same models, not copies

width, height = map(int, (args.size.split("x") * 2)[:2])
asked = {"num_inference_steps": args.steps, "generator": torch.Generator().manual_seed(0)}
small = first(args.prompt, width=width // args.scale, height=height // args.scale, **asked).images[0]
with todome.apply(second, todome.Downsample(args.factor)) as patch:  # taken off again at the end of the block
    large = small.resize((width, height))
    picture = second(args.prompt, image=large, strength=args.strength, **asked).images[0]
picture.save(args.out)
print(patch, f"Picture: {args.out}", sep="\n")
