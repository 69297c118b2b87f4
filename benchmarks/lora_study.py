"""Does a LoRA that was trained with fewer keys keep more quality under them? On the embedded model, in a new style.

    python benchmarks/posters.py PHOTOS --out posters
    python benchmarks/lora_study.py posters --work runs --out benchmarks/results/lora-study.json \
        --lpips lpips.safetensors --inception inception.safetensors

Every way of training makes a LoRA (`examples/train_lora.py`), and every way of sampling draws the same pictures with
each of them (`todome eval`). Closeness is to the dense pictures of the same LoRA; FID is to posters that no LoRA has
seen. A run that was interrupted goes on. `--sheet lora.png` shows picture 10 of them all.

The committed results are from commit c22ddc6, whose `todome train-lora` showed every picture mirrored as well.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from ancestors import summary
from PIL import Image, ImageDraw
from posters import CAPTIONS

from todome import Downsample
from todome.tools.measuring.evaluation import carry_out, plan_for
from todome.tools.measuring.methods import Method, method_named
from todome.tools.measuring.runs import picture_path, write_json
from todome.tools.pictures import write_png
from todome.tools.pipelines import EMBEDDED, open_pipeline, weights_of
from todome.tools.sheets import INK, MARGIN, TEXT, draw_line

TRAINED = ["dense", "todome:2,phase=random", "todome:4,phase=random", "todo:4"]
SAMPLED = ["todome:2", "todome:4", "todo:4"]
SHOWN = ["dense", "factor 2", "factor 4", "ToDo 4"]
SIZE = (256, 256)
EXAMPLE = Path(__file__).parents[1] / "examples/train_lora.py"


def learn(method: Method, photos: Path, lora: Path, learnt: Mapping[str, Any]) -> None:
    """A folder with a LoRA. What is there already is not made again."""
    reduction: Any = method.reduction or Downsample(1)
    options = {**learnt, "out": lora, "factor": reduction.factor, "phase": reduction.phase}
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    precision = {"ACCELERATE_MIXED_PRECISION": "bf16"} if torch.cuda.is_available() else {}
    command = [sys.executable, str(EXAMPLE), str(photos), *words, "--resume"]
    subprocess.run(command, env=os.environ | precision, check=True)


def trained(method: Method, photos: Path, learnt: Mapping[str, Any], work: Path) -> Path:
    """A pipeline with a LoRA of its own in its weights."""
    folder = work / method.name.partition(",")[0].replace(":", "-")
    lora = folder.with_name(f"{folder.name}-lora")
    learn(method, photos, lora, learnt)
    if not (folder / "model_index.json").exists():
        pipe = open_pipeline(dtype="float32")
        pipe.load_lora_weights(str(lora))
        pipe.fuse_lora()
        pipe.unload_lora_weights()
        pipe.save_pretrained(folder)
    return folder


def sheet(pictures: Sequence[Sequence[Image.Image]]) -> Image.Image:
    """A row for each way to train, a column for each way to sample."""
    side, left, top = pictures[0][0].width, 2 * MARGIN, MARGIN
    page = Image.new("RGB", (left + len(SHOWN) * side, top + len(SHOWN) * side), "white")
    draw = ImageDraw.Draw(page)
    for i, name in enumerate(SHOWN):
        draw_line(draw, (left + i * side, top // 3), f"sampled {name}", TEXT, INK, side)
        draw_line(draw, (TEXT // 2, top + i * side + side // 2 - TEXT), "trained", TEXT, INK, left)
        draw_line(draw, (TEXT // 2, top + i * side + side // 2 + 4), name, TEXT, INK, left)
        for k, picture in enumerate(pictures[i]):
            page.paste(picture, (left + k * side, top + i * side))
    return page


def drawn(folder: Path, number: int) -> list[Image.Image]:
    """One picture of a LoRA, in all ways of sampling."""
    run = folder.with_name(f"{folder.name}-pictures")
    return [Image.open(picture_path(run, SIZE, name, number)).convert("RGB") for name in ["dense", *SAMPLED]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("posters", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="where LoRAs, models and pictures go")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lpips", type=Path)
    parser.add_argument("--inception", type=Path)
    parser.add_argument("--pictures", type=int, default=512, help="of each way to train and to sample")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--sheet", type=Path, help="where one picture in all ways goes")
    parser.add_argument("--picture", type=int, default=10, help="which one")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    learnt = {name: getattr(options, name) for name in ("steps", "batch", "rank", "learning_rate")}
    found, pictures = {}, []
    for method in map(method_named, TRAINED):
        folder = trained(method, options.posters / "train", learnt, options.work)
        plan = plan_for(
            str(folder),
            list(CAPTIONS.values()),
            methods=SAMPLED,
            sizes=[SIZE],
            pictures=options.pictures,
            guidance=3.0,
            batch=256,
            real=str(options.posters / "real") if options.inception else None,
        )
        judges = {"fid": options.inception is not None, "lpips": options.lpips, "inception": options.inception}
        run = carry_out(plan, folder.with_name(f"{folder.name}-pictures"), **judges)
        found[method.name] = {**weights_of(EMBEDDED), "recipe": learnt, **summary(run)}
        write_json(options.out, found)
        pictures.append(drawn(folder, options.picture))
    if options.sheet:
        write_png(sheet(pictures).quantize(), options.sheet, weights_of(EMBEDDED), force=True)


if __name__ == "__main__":
    main()
