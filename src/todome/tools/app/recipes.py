"""How to make a picture of the page again: as a command, and in Python."""

import json
import shlex
from dataclasses import fields, replace
from typing import Any

from ...reductions import Merge, Reduction, as_tuple
from ..generate import Settings
from ..pipelines import EMBEDDED, SCHEDULERS, format_size, reachable_device, torch_dtype
from .session import Run, Shot


def settings_again(run: Run, shot: Shot) -> Settings:
    """With what was left to the pipeline; the machine as the operator named it."""
    return replace(shot.made, device=run.asked.device, dtype=run.asked.dtype)


def command(settings: Settings, file: str) -> str:
    """What to type. A stride, which the command has no option for, is read from the picture itself."""
    if isinstance(settings.reduction, Merge) and settings.reduction.stride != (2, 2):
        return shlex.join(["todome", "generate", "--like", file, "-o", f"again-{file}"])
    options = {
        "model": None if settings.model == EMBEDDED else settings.model,
        "negative": settings.negative or None,
        "size": settings.size and format_size(settings.size),
        "steps": settings.steps,
        "guidance": settings.guidance,
        "scheduler": settings.scheduler,
        "seed": settings.seed,
        **reducing(settings.reduction),
        "device": None if settings.device == "auto" else settings.device,
        "dtype": None if settings.dtype == "auto" else settings.dtype,
    }
    words = [f"--{name}={value}" for name, value in options.items() if value is not None]
    words += ["--dense"] if settings.reduction is None else []
    return shlex.join(["todome", "generate", *words, "-o", file, "--", settings.prompt])


def reducing(reduction: Reduction | None) -> dict[str, Any]:
    """A reduction as options of the command, without what is as usual."""
    if reduction is None:
        return {}
    levels = ",".join(map(str, as_tuple(getattr(reduction, reduction.level_field))))
    changed = {name: value for name, value in unusual(reduction).items() if name in ("phase", "start", "stop")}
    return {reduction.level_field: levels, **changed}


def unusual(reduction: Reduction) -> dict[str, Any]:
    """The fields of a reduction that are not as usual."""
    usual = type(reduction)()
    given = {field.name: getattr(reduction, field.name) for field in fields(reduction)}  # pyright: ignore[reportArgumentType]
    return {name: value for name, value in given.items() if value != getattr(usual, name)}


def snippet(settings: Settings, file: str) -> str:
    """What to run in Python: diffusers as always, and one line of todome."""
    device = reachable_device(settings.device)
    embedded = settings.model == EMBEDDED
    source = "todome_flowers.path()" if embedded else quoted(settings.model)
    dtype = torch_dtype(settings.dtype, device)
    lines = ["import diffusers", *["import todome"] * bool(settings.reduction), *["import todome_flowers"] * embedded]
    lines += ["import torch", ""]
    lines += [f"pipe = diffusers.DiffusionPipeline.from_pretrained({source}, dtype={dtype}).to({quoted(str(device))})"]
    lines += scheduling(settings.scheduler)
    if settings.reduction is not None:
        given = ", ".join(f"{name}={value!r}" for name, value in unusual(settings.reduction).items())
        lines += [f"todome.apply(pipe, todome.{type(settings.reduction).__name__}({given}))"]
    lines += ["picture = pipe(", *(f"    {argument}," for argument in arguments(settings)), ").images[0]"]
    return "\n".join([*lines, f"picture.save({quoted(file)})", ""])


def scheduling(name: str | None) -> list[str]:
    if name is None:
        return []
    kind, _, options = SCHEDULERS[name]
    given = "".join(f", {option}={value!r}" for option, value in options.items())
    return [f"pipe.scheduler = diffusers.{kind}.from_config(pipe.scheduler.config{given})"]


def arguments(settings: Settings) -> list[str]:
    width, height = settings.size or (None, None)
    given = {
        "negative_prompt": quoted(settings.negative) if settings.negative else None,
        "width": width,
        "height": height,
        "num_inference_steps": settings.steps,
        "guidance_scale": settings.guidance,
        "generator": f"torch.Generator().manual_seed({settings.seed})",
    }
    return [quoted(settings.prompt), *(f"{name}={value}" for name, value in given.items() if value is not None)]


def quoted(text: str) -> str:
    """A text as Python reads it."""
    return json.dumps(text, ensure_ascii=False)
