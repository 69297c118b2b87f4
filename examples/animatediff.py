"""AnimateDiff: the attention within each frame sees fewer keys, that between the frames is left alone.

python examples/animatediff.py "a ship in a storm" --frames 16
"""

from typing import Any

import torch
from arguments import parsed, parser_for
from diffusers import AnimateDiffPipeline, DDIMScheduler, MotionAdapter

import todome
from todome.tools.files import atomic_write


def main() -> None:
    parser = parser_for(
        __doc__,
        prompt="a ship in a storm",
        model="stable-diffusion-v1-5/stable-diffusion-v1-5",
        size="512x768",
        steps=25,
        factor="auto",
        out="animation.gif",
    )
    parser.add_argument("--adapter", default="guoyww/animatediff-motion-adapter-v1-5-2", help="as --model")
    parser.add_argument("--frames", type=int, default=16, help="how many")
    args = parsed(parser)
    motion = MotionAdapter.from_pretrained(args.adapter, dtype=args.dtype)
    pipe: Any = AnimateDiffPipeline.from_pretrained(args.model, motion_adapter=motion, dtype=args.dtype).to(args.device)
    pipe.scheduler = DDIMScheduler.from_config(  # what the adapter was trained with
        pipe.scheduler.config, beta_schedule="linear", timestep_spacing="linspace", clip_sample=False
    )
    patch = todome.apply(pipe, todome.Downsample(args.factor))
    width, height = args.size
    asked = {"width": width, "height": height, "num_frames": args.frames, "num_inference_steps": args.steps}
    frames = pipe(args.prompt, **asked, generator=torch.Generator().manual_seed(args.seed)).frames[0]
    with atomic_write(args.out) as beside:
        frames[0].save(beside, "GIF", save_all=True, append_images=frames[1:], duration=125, loop=0)
    print(patch, f"Animation: {args.out}", sep="\n")


if __name__ == "__main__":
    main()
