"""DeepCache and todome together: one skips layers at most steps, the other gives the rest fewer tokens to attend to.

Needs `pip install DeepCache`. Either may come first, and each can be taken off alone.

    python deepcache.py "white daisies" --interval 3
"""

import argparse

import torch
from DeepCache import DeepCacheSDHelper
from diffusers import StableDiffusionPipeline

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("prompt", nargs="?", default="white daisies")
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--size", default="1024", help="512, or 512x768 for width x height")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--interval", type=int, default=3, help="run the whole model once in so many steps")
parser.add_argument("--out", default="deepcache.png")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe = StableDiffusionPipeline.from_pretrained(args.model, dtype=dtype).to(device)
helper = DeepCacheSDHelper(pipe=pipe)
helper.set_params(cache_interval=args.interval, cache_branch_id=0)
helper.enable()
patch = todome.apply(pipe, todome.Downsample(args.factor))

width, height = map(int, (args.size.split("x") * 2)[:2])
noise = torch.Generator().manual_seed(0)
picture = pipe(args.prompt, width=width, height=height, num_inference_steps=args.steps, generator=noise).images[0]
helper.disable()
picture.save(args.out)
print(patch, f"Picture: {args.out}", sep="\n")
