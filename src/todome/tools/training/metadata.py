"""What a LoRA's file says of its training: the reduction, in kohya's words and in ours."""

import json
from pathlib import Path
from typing import Any

import torch

from ... import __version__
from ...errors import invalid_value
from ...reductions import Downsample, Reduction, as_tuple
from ..generate import reduction_of


def metadata(reduction: Reduction | None, **training: Any) -> dict[str, str]:
    """The metadata of a safetensors file: all for `reduction_in`, and what other trainers write.

    Args:
        reduction: What the UNet was trained with; None is dense.
        **training: What else to tell of the training.
    """
    import diffusers
    import peft

    named = reduction and {"name": type(reduction).__name__, **vars(reduction)}
    versions = {"todome": __version__, "torch": torch.__version__}
    versions |= {"diffusers": diffusers.__version__, "peft": peft.__version__}
    told = json.dumps({"reduction": named, **training, "versions": versions})
    return {"format": "pt", **in_kohyas_words(reduction), "todome": told}


def in_kohyas_words(reduction: Reduction | None) -> dict[str, str]:
    """As kohya's pull request for token downsampling names it. It knows no automatic factor and no merging."""
    if not isinstance(reduction, Downsample) or reduction.factor == "auto":
        return {}
    factors = [float(factor) for factor in as_tuple(reduction.factor)]
    return {"ss_todo_factor": str(factors), "ss_todo_max_depth": str(len(factors))}


def reduction_in(path: Path) -> Reduction | None:
    """What a LoRA was trained with, from its file; None is dense."""
    return reduction_of(training_in(path)["reduction"])


def training_in(path: Path) -> dict[str, Any]:
    """All that a LoRA's file tells of its training."""
    from safetensors import SafetensorError, safe_open

    allowed = "a .safetensors file that todome train-lora made"
    try:
        with safe_open(path, "pt") as file:
            return json.loads((file.metadata() or {})["todome"])
    except OSError:
        raise invalid_value("lora", str(path), allowed, "There is no file of that name", FileNotFoundError) from None
    except (KeyError, SafetensorError, ValueError):
        raise invalid_value("lora", str(path), allowed, "This one says nothing of its training") from None
