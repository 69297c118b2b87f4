"""SDXL with a factor for each of its two levels: six in seven of its layers are at the second one.

At 1024 px there is little to gain, whatever the factors: docs/speed.md says how much at which size.

python examples/sdxl.py "a lighthouse at dusk" --size 2048x2048 --factor 4,2
"""

from typing import Any

import torch
from arguments import parsed, parser_for
from diffusers import StableDiffusionXLPipeline

import todome
from todome.tools.pictures import write_png


def main() -> None:
    args = parsed(
        parser_for(
            __doc__,
            prompt="a lighthouse at dusk",
            model="stabilityai/stable-diffusion-xl-base-1.0",
            size="1536x1536",
            steps=30,
            factor="3,2",  # "auto" would leave the second level dense up to 2048 px
            out="sdxl.png",
        )
    )
    pipe: Any = StableDiffusionXLPipeline.from_pretrained(args.model, dtype=args.dtype).to(args.device)
    patch = todome.apply(pipe, todome.Downsample(args.factor))
    width, height = args.size
    noise = torch.Generator().manual_seed(args.seed)
    made = pipe(args.prompt, width=width, height=height, num_inference_steps=args.steps, generator=noise)
    write_png(made.images[0], args.out, {"Title": args.prompt}, force=args.force)
    print(patch, f"Picture: {args.out}", sep="\n")


if __name__ == "__main__":
    main()
