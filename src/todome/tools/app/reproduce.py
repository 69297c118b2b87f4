"""Command and Python snippet that make a picture of the page again."""

import shlex
from dataclasses import fields
from typing import Any

from ...levers.plan import LeverOrPlan, Plan
from ..devices import reachable_device, torch_dtype
from ..generate import Settings
from ..pipelines import EMBEDDED
from ..schedulers import SCHEDULERS
from ..snippets import opening_lines, quote_text
from .runs import Run
from .start import Start


def command(file: str) -> str:
    """Command for a shell: the settings are in the file."""
    return shlex.join(["todome", "generate", "--like", file, "-o", f"again-{file}"])


def snippet(run: Run) -> str:
    """Python program: diffusers as always, and one line of todome."""
    picture, start = run.result, run.start
    settings, reduction = picture.settings, picture.settings.reduction
    embedded = settings.model == EMBEDDED
    modules = ["diffusers", *["todome"] * bool(reduction), *["todome_flowers"] * embedded, "torch"]
    lines = [*(f"import {module}" for module in modules), *["from PIL import Image"] * bool(start), ""]
    device = reachable_device(picture.asked.device)
    lines += opening_lines(settings, device, torch_dtype(picture.asked.dtype, device))
    lines += [*scheduler_lines(settings.scheduler), *start_lines(start)]
    if reduction is not None:
        lines += [f"todome.apply(pipe, {reduction_code(reduction)})"]
    lines += [
        "picture = pipe(",
        *(f"    {argument}," for argument in call_arguments(settings, start, run.strength)),
        ").images[0]",
    ]
    return "\n".join([*lines, f"picture.save({quote_text(picture.file.name)})", ""])


def reduction_code(reduction: LeverOrPlan) -> str:
    """Python that makes the reduction, without fields that have their default. A plan is read from its file."""
    if isinstance(reduction, Plan):
        return 'todome.Plan.load("plan.json")'
    default = type(reduction)()
    given = {field.name: getattr(reduction, field.name) for field in fields(reduction)}  # pyright: ignore[reportArgumentType]
    changed = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != getattr(default, name))
    return f"todome.{type(reduction).__name__}({changed})"


def start_lines(start: Start | None) -> list[str]:
    if start is None:
        return []
    kind = "AutoPipelineForInpainting" if start.masked else "AutoPipelineForImage2Image"
    return [f"pipe = diffusers.{kind}.from_pipe(pipe)  # start.png has the size to draw"]


def scheduler_lines(name: str | None) -> list[str]:
    if name is None:
        return []
    kind, _, options = SCHEDULERS[name]
    given = "".join(f", {option}={value!r}" for option, value in options.items())
    return [f"pipe.scheduler = diffusers.{kind}.from_config(pipe.scheduler.config{given})"]


def call_arguments(settings: Settings, start: Start | None, strength: float) -> list[str]:
    taken = start is not None and not start.masked  # image to image has the size of the picture
    width, height = (None, None) if taken else settings.size or (None, None)
    given: dict[str, Any] = {
        "negative_prompt": quote_text(settings.negative) if settings.negative else None,
        "image": 'Image.open("start.png")' if start else None,
        "mask_image": 'Image.open("mask.png")' if start and start.masked else None,
        "strength": strength if start else None,
        "width": width,
        "height": height,
        "num_inference_steps": settings.steps,
        "guidance_scale": settings.guidance,
        "generator": f"torch.Generator().manual_seed({settings.seed})",
    }
    return [quote_text(settings.prompt), *(f"{name}={value}" for name, value in given.items() if value is not None)]
