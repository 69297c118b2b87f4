"""Configs from a checkpoint's shapes, for the published models: ComfyUI's own classes, without weights."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from todome.tools.checkpoints.configs import unet_config
from todome.tools.checkpoints.header import Header
from todome.tools.checkpoints.kinds import SD1, SD2, SDXL, Kind
from todome.tools.measuring.subjects import ARCHITECTURES

FOUR = {"channel_mult": (1, 2, 4, 4), "num_res_blocks": [2] * 4, "transformer_depth": [1] * 6 + [0] * 2}
FOUR |= {"transformer_depth_output": [1] * 9 + [0] * 3, "transformer_depth_middle": 1, "num_heads": 8}
HEADS = {"num_heads": -1, "num_head_channels": 64, "use_linear_in_transformer": True}
THREE = {"channel_mult": (1, 2, 4), "num_res_blocks": [2] * 3, "transformer_depth": [0, 0, 2, 2, 10, 10]}
THREE |= {"transformer_depth_output": [0] * 3 + [2] * 3 + [10] * 3, "transformer_depth_middle": 10, **HEADS}
UNETS: dict[str, tuple[Kind, dict[str, Any]]] = {
    "sd15": (SD1, {"context_dim": 768, **FOUR}),
    "sd21": (SD2, {"context_dim": 1024, **FOUR, **HEADS}),
    "sdxl": (SDXL, {"context_dim": 2048, "num_classes": "sequential", "adm_in_channels": 2816, **THREE}),
}


@pytest.mark.usefixtures("comfy")
def test_the_published_models():
    model = importlib.import_module("comfy.ldm.modules.diffusionmodules.openaimodel").UNetModel
    usual = {"image_size": 32, "in_channels": 4, "out_channels": 4, "model_channels": 320}
    usual |= {"use_spatial_transformer": True, "legacy": False, "device": "meta"}
    for name, (kind, config) in UNETS.items():
        weights = model(**usual, **config).state_dict()
        header = Header(Path(), {key: tuple(tensor.shape) for key, tensor in weights.items()}, {})
        found = unet_config(header, kind)
        for field, value in ARCHITECTURES[name].items():
            expected = list(value) if isinstance(value, tuple) else value
            assert field == "sample_size" or found[field] == expected, (name, field)
