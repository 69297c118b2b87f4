"""Stable Diffusion 1.5 at a size where attention is most of the work.

python examples/sd15.py "a lighthouse at dusk" --size 2048x2048 --out lighthouse.png
"""

from typing import Any

import torch
from arguments import parsed, parser_for
from diffusers import StableDiffusionPipeline

import todome
from todome.tools.pictures import write_png


def main() -> None:
    args = parsed(
        parser_for(
            __doc__,
            prompt="a lighthouse at dusk",
            model="stable-diffusion-v1-5/stable-diffusion-v1-5",
            size="1024x1024",
            steps=25,
            factor="auto",  # 2 at 1024 px, 3 at 1536, 4 at 2048
            out="sd15.png",
        )
    )
    pipe: Any = StableDiffusionPipeline.from_pretrained(args.model, dtype=args.dtype).to(args.device)
    patch = todome.apply(pipe, todome.Downsample(args.factor))  # todome.apply(pipe) is the same with factor="auto"
    width, height = args.size
    noise = torch.Generator().manual_seed(args.seed)
    made = pipe(args.prompt, width=width, height=height, num_inference_steps=args.steps, generator=noise)
    write_png(made.images[0], args.out, {"Title": args.prompt}, force=args.force)
    print(patch, f"Picture: {args.out}", sep="\n")


if __name__ == "__main__":
    main()
