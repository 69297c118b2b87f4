"""What the tests of the training share: stages that take no time, drawn flowers, and a look into a run's folder."""

import json
from pathlib import Path
from typing import Any

import checkpoints
import diffusion
from diffusers import UNet2DConditionModel
from diffusion import Size, Stage
from models import TEXT_CHANNELS
from PIL import Image, ImageDraw

COLOUR = {"daisy": "white", "dandelion": "yellow", "rose": "red", "sunflower": "yellow", "tulip": "red"}
EACH = 3  # photos of each kind
STAGES = [
    Stage("small", (Size(32, 32, 2, 2),), (diffusion.WHOLE, 1.8), 3),
    Stage("mixed", (Size(64, 64, 2, 1), Size(32, 64, 2, 1)), (1.1, 1.1), 2),
]
ITERATIONS = 5  # of both


def draw_flower(colour: str, radius: int) -> Image.Image:
    photo = Image.new("RGB", (300, 280), (40, 120, 40))
    ImageDraw.Draw(photo).ellipse((150 - radius, 140 - radius, 150 + radius, 140 + radius), fill=colour)
    return photo


def tiny_unet() -> UNet2DConditionModel:
    return UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        attention_head_dim=2,
        cross_attention_dim=TEXT_CHANNELS,
    )


def logged(run: Path, name: str = "diffusion") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def state_of(run: Path, name: str = "diffusion") -> dict[str, Any]:
    state = checkpoints.read_state(run, name)
    assert state is not None
    return state
