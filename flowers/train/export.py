"""Put the trained parts together: an ordinary StableDiffusionPipeline folder, safetensors only.

    python export.py --run run --to ../src/todome_flowers/pipeline

UNet and autoencoder are stored in half precision, which halves the download and changes no picture visibly.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from checkpoints import read_weights
from diffusers import StableDiffusionPipeline
from models import make_autoencoder, make_scheduler, make_text_encoder, make_tokenizer, make_unet, unet_changes
from safetensors.torch import load_file, save_file
from words import vocabulary


def assemble(run: Path | None) -> StableDiffusionPipeline:
    """The pipeline with the weights of a run, or with random ones."""
    tokenizer = make_tokenizer(vocabulary())
    parts: dict[str, Any] = {
        "unet": make_unet(**unet_changes(run)),
        "vae": make_autoencoder(),
        "text_encoder": make_text_encoder(tokenizer),
    }
    if run is not None:
        for name, part in parts.items():
            part.load_state_dict(read_weights(run, name))
    parts["unet"].half()
    parts["vae"].half()
    rest: dict[str, Any] = {"safety_checker": None, "feature_extractor": None, "image_encoder": None}
    rest["scheduler"] = make_scheduler()
    return StableDiffusionPipeline(
        **{name: part.eval() for name, part in parts.items()},
        tokenizer=tokenizer,
        **rest,
        requires_safety_checker=False,
    )


def export(pipe: StableDiffusionPipeline, folder: Path) -> None:
    """Write next to the destination first, then move: never half a pipeline."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / folder.name
        pipe.save_pretrained(made, safe_serialization=True)
        model = json.loads((made / "tokenizer" / "tokenizer.json").read_text())["model"]
        write_classic_tokenizer(model, made / "tokenizer")
        name_classically(made / "text_encoder" / "model.safetensors")
        drop_derived(made / "vae" / "config.json", "block_out_channels")
        for file in made.rglob("*.safetensors"):
            file.chmod(0o644)
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)


def write_classic_tokenizer(model: dict, folder: Path) -> None:
    """The two files that transformers 4 and most other programs read."""
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")


def name_classically(file: Path) -> None:
    """The names that transformers 4 knows, and 5 still reads: without them 4 would draw with random weights."""
    weights = load_file(file)
    save_file({f"text_model.{name}": tensor for name, tensor in weights.items()}, file, {"format": "pt"})


def drop_derived(config: Path, key: str) -> None:
    """AutoencoderTiny writes this key and warns when it reads it."""
    kept = {name: value for name, value in json.loads(config.read_text()).items() if name != key}
    config.write_text(json.dumps(kept, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="the folder of the run; without it the weights are random")
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    export(assemble(options.run), options.to)
    size = sum(file.stat().st_size for file in options.to.rglob("*")) / 1e6
    print(f"{options.to}: {size:.1f} MB")


if __name__ == "__main__":
    main()
