"""A hires fix: a small picture for the composition, then a large one made from it, with fewer keys.

Large pictures drawn at once tend to show everything twice. Most of the time goes into the second pass.

python examples/hires.py "a bed of red tulips"
"""

from typing import Any

import torch
from arguments import parsed, parser_for
from diffusers import StableDiffusionImg2ImgPipeline

import todome
from todome.tools.pictures import write_png
from todome.tools.pipelines import open_pipeline


def main() -> None:
    parser = parser_for(
        __doc__,
        prompt="a bed of red tulips",
        model="todome-flowers",  # the embedded model; "stable-diffusion-v1-5/stable-diffusion-v1-5" with 1024x1024
        size="512x512",
        steps=25,
        factor="auto",
        out="hires.png",
    )
    parser.add_argument("--scale", type=int, default=2, help="how many times as wide and high the second pass is")
    parser.add_argument("--strength", type=float, default=0.6, help="how much the second pass may change")
    parser.add_argument("--guidance", type=float, default=3.0, help="how much the prompt counts")
    args = parsed(parser)
    first = open_pipeline(args.model, str(args.device))
    second: Any = StableDiffusionImg2ImgPipeline.from_pipe(first, dtype=first.dtype)  # the same models, not copies
    asked = {"prompt": args.prompt, "num_inference_steps": args.steps, "guidance_scale": args.guidance}
    noise = torch.Generator().manual_seed(args.seed)
    width, height = (side // args.scale for side in args.size)
    small = first(**asked, width=width, height=height, generator=noise).images[0]
    with todome.apply(second, todome.Downsample(args.factor)) as patch:
        enlarged = small.resize(args.size)
        picture = second(**asked, image=enlarged, strength=args.strength, generator=noise).images[0]
    write_png(picture, args.out, {"Title": args.prompt}, force=args.force)
    print(patch, f"Picture: {args.out}", sep="\n")


if __name__ == "__main__":
    main()
