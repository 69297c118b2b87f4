"""Dense, ToMe, ToDo and todome side by side on one pipeline, with the same seed: how fast, how close to dense.

    python examples/demo.py --steps 10 --out demo.png

The pipeline has the structure of Stable Diffusion and random weights, so its pictures are patterns; times and closeness
are real. Runs on a CPU, offline, in about a minute.
"""

import argparse
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from rich.console import Console
from rich.table import Table

import todome

METHODS: dict[str, todome.Downsample | todome.Merge | None] = {
    "dense": None,
    "ToMe 0.5": todome.Merge(ratio=0.5),
    "ToDo 2": todome.Downsample(factor=2, phase="fixed"),
    "todome 2": todome.Downsample(factor=2),
}


def random_pipeline() -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it misses a torchvision that nothing here uses
    from diffusers import AutoencoderTiny, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

    torch.manual_seed(0)
    parts: dict[str, Any] = dict.fromkeys(["text_encoder", "tokenizer", "safety_checker", "feature_extractor"])
    parts["scheduler"] = DDIMScheduler(clip_sample=False, steps_offset=1)
    parts["vae"] = AutoencoderTiny(
        encoder_block_out_channels=(16, 16, 16),
        decoder_block_out_channels=(16, 16, 16),
        num_encoder_blocks=(1, 1, 1),
        num_decoder_blocks=(1, 1, 1),
    )
    parts["unet"] = UNet2DConditionModel(
        sample_size=64,
        block_out_channels=(64, 128),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        attention_head_dim=2,
        cross_attention_dim=64,
    )
    return StableDiffusionPipeline(**parts, requires_safety_checker=False)


def generate(pipe: Any, name: str, steps: int) -> tuple[torch.Tensor, float]:
    """The picture (3, height, width) from 0 to 1, and the seconds it took."""
    pipe.set_progress_bar_config(desc=f"{name:>8}")
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randn(1, 8, 64, generator=torch.Generator().manual_seed(2))
    began = time.perf_counter()
    picture = pipe(
        prompt_embeds=prompt,
        negative_prompt_embeds=torch.zeros_like(prompt),
        num_inference_steps=steps,
        generator=generator,
        output_type="pt",
    ).images[0]
    return picture, time.perf_counter() - began


def psnr(picture: torch.Tensor, reference: torch.Tensor) -> float:
    error = (picture - reference).square().mean().item()
    return math.inf if error == 0 else -10 * math.log10(error)


def side_by_side(pictures: list[torch.Tensor], captions: list[str]) -> Image.Image:
    size, gap, line = pictures[0].shape[-1], 8, 20
    sheet = Image.new("RGB", (len(pictures) * (size + gap) - gap, size + line), "white")
    for i, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        pixels = (picture.movedim(0, -1) * 255).round().byte().numpy()
        sheet.paste(Image.fromarray(pixels), (i * (size + gap), 0))
        ImageDraw.Draw(sheet).text((i * (size + gap) + 2, size + 4), caption, fill="black")
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("demo.png"))
    options = parser.parse_args()
    pipe = random_pipeline()
    generate(pipe, "warm-up", 1)
    table = Table("method", "seconds", "speed-up", "PSNR to dense")
    pictures, captions, dense, patch, white = [], [], None, None, 1.0
    for name, reduction in METHODS.items():
        if reduction is not None:
            patch = todome.apply(pipe, reduction)
        picture, seconds = generate(pipe, name, options.steps)
        if dense is None:
            white = picture.max()  # random weights draw in the dark
        picture = picture / white
        pictures.append(picture.clamp(max=1))
        dense = dense or (picture, seconds)
        close = "" if reduction is None else f"{psnr(picture, dense[0]):.1f} dB"
        table.add_row(name, f"{seconds:.1f}", f"{dense[1] / seconds:.2f}x", close)
        captions.append(f"{name}  {seconds:.1f} s  {dense[1] / seconds:.2f}x  {close}")
    side_by_side(pictures, captions).save(options.out)
    Console(soft_wrap=True).print(str(patch), table, f"Pictures: {options.out}", sep="\n")


if __name__ == "__main__":
    main()
