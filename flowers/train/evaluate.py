"""How good the pictures are: FID to the photos, how often a probe finds the kind asked for, and a contact sheet.

    python evaluate.py --pipeline ../src/todome_flowers/pipeline --run run --inception inception.safetensors --to ..

The probe is a linear one on Inception's features, trained on the photos. Writes metrics.json, contact-sheet.jpg
and sizes.jpg.
"""

import argparse
import json
import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from diffusers import StableDiffusionPipeline
from PIL import Image
from prepared import Entry, read_entries
from probe import Probe, cross_validated, features_of
from safetensors.torch import load_file
from todome_flowers import fingerprint
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from words import KINDS

from todome.tools.metrics import Inception, frechet_distance

STEPS, GUIDANCE, BATCH = 25, 3.0, 128
SHEET = (  # prompts of the contact sheet, eight pictures each
    *(f"a photo of a {kind}" for kind in KINDS),
    "a red tulip, close-up",
    "a field of yellow tulips",
    "pink roses",
    "white dandelion",
)
SIZES = ("a field of red tulips", "a photo of a sunflower", "white daisies", "a pink rose, close-up")


def prompt_of(entry: Entry) -> str:
    """The plain way to ask for such a photo."""
    words = ["a photo of a", entry.colour, entry.kind]
    return " ".join(word for word in words if word) + (f", {entry.view}" if entry.view else "")


@torch.inference_mode()
def pictures(pipe: Any, prompts: Sequence[str], seeds: Sequence[int], height: int = 256, width: int = 256) -> Tensor:
    """One picture per prompt and seed, (N, 3, height, width) in bytes."""
    made = []
    for at in tqdm(range(0, len(prompts), BATCH), "pictures", mininterval=5):
        generators = [torch.Generator(pipe.device).manual_seed(seed) for seed in seeds[at : at + BATCH]]
        size = {"height": height, "width": width, "num_inference_steps": STEPS, "guidance_scale": GUIDANCE}
        images = pipe(list(prompts[at : at + BATCH]), generator=generators, output_type="pt", **size).images
        made.append((images * 255).round().byte().cpu())
    return torch.cat(made)


def measure(pipe: Any, network: Inception, run: Path, count: int) -> dict[str, Any]:
    """FID and the probe's verdict on `count` pictures, asked for in the proportions of the photos."""
    real = load_file(run / "features.safetensors")
    features, kinds = real["features"].float(), real["kinds"]
    entries = read_entries(run)
    asked = [entries[i * len(entries) // count] for i in range(count)]
    images = pictures(pipe, [prompt_of(entry) for entry in asked], range(count))
    made = features_of(images, network)
    wanted = torch.tensor([list(KINDS).index(entry.kind) for entry in asked])
    found = Probe(features, kinds)(made).argmax(-1) == wanted
    per_kind = {kind: round(found[wanted == i].double().mean().item(), 4) for i, kind in enumerate(KINDS)}
    return {
        "fid": round(frechet_distance(made, features), 3),
        "pictures": count,
        "kind_found": round(found.double().mean().item(), 4),
        "kind_found_per_kind": per_kind,
        "photos_recognised": round((cross_validated(features, kinds) > 0.5).double().mean().item(), 4),
    }


def contact_sheet(rows: Sequence[Tensor], path: Path, comment: str = "", gap: int = 4, smaller: int = 1) -> None:
    """Rows of pictures, each row (N, 3, height, width) in bytes; the sheet is made `smaller` times smaller."""
    strips = [torch.cat([F.pad(image, (0, gap, 0, gap), value=255) for image in row], dim=-1) for row in rows]
    width = max(strip.shape[-1] for strip in strips)
    sheet = torch.full((3, sum(strip.shape[1] for strip in strips), width), 255, dtype=torch.uint8)
    top = 0
    for strip in strips:
        sheet[:, top : top + strip.shape[1], : strip.shape[2]] = strip
        top += strip.shape[1]
    Image.fromarray(sheet.movedim(0, -1).numpy()).reduce(smaller).save(path, quality=88, comment=comment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", type=Path, required=True, help="the exported folder")
    parser.add_argument("--run", type=Path, default=Path("run"))
    parser.add_argument(
        "--inception", type=Path, help="weights of the FID network; without them only the sheets are made"
    )
    parser.add_argument("--to", type=Path, default=Path())
    parser.add_argument("--count", type=int, default=2048)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    dtype = torch.float32 if options.device == "cpu" else torch.float16
    pipe = StableDiffusionPipeline.from_pretrained(options.pipeline, dtype=dtype).to(options.device)
    pipe.set_progress_bar_config(disable=True)
    weights = {"weights": fingerprint(options.pipeline)}
    make_sheets(pipe, options.to, json.dumps(weights))
    if options.inception:
        network = Inception.load(options.inception).to(options.device)
        measured = measure(pipe, network, options.run, options.count)
        measured |= {"steps": STEPS, "guidance": GUIDANCE, "scheduler": type(pipe.scheduler).__name__}
        measured |= {
            **weights,
            "date": str(date.today()),
            "machine": machine(options.device),
            "torch": version("torch"),
        }
        (options.to / "metrics.json").write_text(json.dumps(measured, indent=2) + "\n")
        print(json.dumps(measured, indent=2))


def make_sheets(pipe: Any, to: Path, comment: str) -> None:
    square = [pictures(pipe, [prompt] * 8, range(8)) for prompt in SHEET]
    contact_sheet(square, to / "contact-sheet.jpg", comment, smaller=2)
    sizes = [pictures(pipe, SIZES, range(len(SIZES)), *size) for size in ((256, 384), (512, 512))]
    contact_sheet(sizes, to / "sizes.jpg", comment, smaller=2)


def machine(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor()


if __name__ == "__main__":
    main()
