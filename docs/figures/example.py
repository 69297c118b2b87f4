"""Draws the example that the page of `todome app` opens with, into src/todome/tools/app/example.

    python docs/figures/example.py

The times are those of the machine that draws it, which example.json names beside the weights that drew it.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from todome import Downsample
from todome.tools.generate import Generated, make_picture, recommended_settings
from todome.tools.machine import about, chip
from todome.tools.measuring.comparing import measures_at
from todome.tools.measuring.verdict import verdict
from todome.tools.metrics import LPIPS
from todome.tools.pictures import as_tensor, difference, write_png
from todome.tools.pipelines import EMBEDDED, open_pipeline, weights_of

SETTINGS = replace(recommended_settings(), prompt="a field of red tulips", size=(384, 384), reduction=None)
REDUCED = replace(SETTINGS, reduction=Downsample(2))
FOLDER = Path(__file__).parents[2] / "src/todome/tools/app/example"


def closeness(full: Generated, reduced: Generated) -> dict[str, float]:
    measures = measures_at(full.picture.size, LPIPS.find())
    pair = as_tensor(reduced.picture), as_tensor(full.picture)
    with torch.inference_mode():
        return {name: round(measures[name](*pair).item(), 6) for name in ("psnr", "ssim", "lpips")}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    pipe = open_pipeline()
    make_picture(replace(SETTINGS, steps=1), pipe)  # to warm up
    made = {"full": make_picture(SETTINGS, pipe), "reduced": make_picture(REDUCED, pipe)}
    for name, one in made.items():
        write_png(one.picture, folder / f"{name}.png", one.texts(), force=True, compress_level=9)
    write_png(difference(made["reduced"].picture, made["full"].picture), folder / "difference.png", {}, force=True)
    found: dict[str, Any] = {
        name: {"seconds": round(one.seconds, 3), "sampler": one.sampler, "reduced": one.reduced}
        for name, one in made.items()
    }
    found |= {"closeness": closeness(made["full"], made["reduced"]), "machine": chip(pipe.device)}
    found |= {**weights_of(EMBEDDED), "about": about(pipe.device, "diffusers")}
    (folder / "example.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(
        verdict(found["full"]["seconds"] / found["reduced"]["seconds"], found["closeness"]["psnr"]), found["closeness"]
    )


if __name__ == "__main__":
    main()
