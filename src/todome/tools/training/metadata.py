"""Metadata of a LoRA's file: its training and the reduction, in kohya's words and in ours."""

import json
from pathlib import Path
from typing import Any

from ...errors import invalid_value
from ...reductions import Downsample, Reduction, as_tuple
from ..metadata import reduction_from_dict, reduction_to_dict, versions_of


def lora_metadata(reduction: Reduction | None, **training: Any) -> dict[str, str]:
    """The metadata of a safetensors file: all for `reduction_in`, and what other trainers write.

    Args:
        reduction: What the UNet was trained with; None is dense.
        **training: What else to say of the training.
    """
    versions = versions_of("diffusers", "peft")
    ours = json.dumps({"reduction": reduction_to_dict(reduction), **training, "versions": versions})
    return {"format": "pt", **kohya_metadata(reduction), "todome": ours}


def kohya_metadata(reduction: Reduction | None) -> dict[str, str]:
    """The reduction as kohya's pull request for token downsampling writes it, which has no "auto" and no merging."""
    if not isinstance(reduction, Downsample) or reduction.factor == "auto":
        return {}
    factors = [float(factor) for factor in as_tuple(reduction.factor)]
    return {"ss_todo_factor": str(factors), "ss_todo_max_depth": str(len(factors))}


def reduction_in(path: Path) -> Reduction | None:
    """What a LoRA was trained with, from its file; None is dense."""
    return reduction_from_dict(training_in(path)["reduction"])


def training_in(path: Path) -> dict[str, Any]:
    """Everything that a LoRA's file says of its training."""
    from safetensors import SafetensorError, safe_open

    allowed = "a .safetensors file that todome train-lora made"
    try:
        with safe_open(path, "pt") as file:
            return json.loads((file.metadata() or {})["todome"])
    except OSError:
        raise invalid_value("lora", str(path), allowed, "There is no file of that name", FileNotFoundError) from None
    except (KeyError, SafetensorError, ValueError):
        raise invalid_value("lora", str(path), allowed, "This one says nothing of its training") from None
