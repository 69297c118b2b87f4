"""AnimateDiff: the attention within each frame is over fewer tokens, that between the frames is left alone.

python animatediff.py "a ship in a storm" --frames 16
"""

import argparse

import torch
from diffusers import AnimateDiffPipeline, DDIMScheduler, MotionAdapter

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("prompt", nargs="?", default="a ship in a storm")
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--adapter", default="guoyww/animatediff-motion-adapter-v1-5-2", help="the same, of the motion")
parser.add_argument("--size", default="512x768", help="512, or 512x768 for width x height")
parser.add_argument("--frames", type=int, default=16)
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--out", default="animation.gif")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
motion = MotionAdapter.from_pretrained(args.adapter, dtype=dtype)
pipe = AnimateDiffPipeline.from_pretrained(args.model, motion_adapter=motion, dtype=dtype).to(device)
trained_with = {"beta_schedule": "linear", "timestep_spacing": "linspace", "clip_sample": False}
pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config, **trained_with)
patch = todome.apply(pipe, todome.Downsample(args.factor))

width, height = map(int, (args.size.split("x") * 2)[:2])
asked = {"width": width, "height": height, "num_frames": args.frames, "num_inference_steps": args.steps}
first, *others = pipe(args.prompt, **asked, generator=torch.Generator().manual_seed(0)).frames[0]
first.save(args.out, save_all=True, append_images=others, duration=125, loop=0)
print(patch, f"Animation: {args.out}", sep="\n")
