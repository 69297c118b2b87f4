"""Command and Python snippet that make a picture of the page again."""

import shlex
from dataclasses import fields, replace
from typing import Any

from ...plan import Plan
from ...reductions import Merge, Reduction, as_tuple
from ..devices import reachable_device, torch_dtype
from ..generate import Settings
from ..pipelines import EMBEDDED, format_size
from ..schedulers import SCHEDULERS
from ..snippets import opening_lines, quote_text
from .form import PLAIN, Extras
from .session import SavedPicture


def settings_to_repeat(picture: SavedPicture) -> Settings:
    """Settings of a picture, with device and dtype as the operator gave them."""
    return replace(picture.settings, device=picture.asked.device, dtype=picture.asked.dtype)


def command(settings: Settings, file: str) -> str:
    """Command for a shell. What it has no option for, a stride or a plan's layers, is read from the picture itself."""
    strided = isinstance(settings.reduction, Merge) and settings.reduction.stride != (2, 2)
    if strided or isinstance(settings.reduction, Plan):
        return shlex.join(["todome", "generate", "--like", file, "-o", f"again-{file}"])
    options = {
        "model": None if settings.model == EMBEDDED else settings.model,
        "vae": settings.vae,
        "negative": settings.negative or None,
        "size": settings.size and format_size(settings.size),
        "steps": settings.steps,
        "guidance": settings.guidance,
        "scheduler": settings.scheduler,
        "seed": settings.seed,
        **reduction_options(settings.reduction),
        "device": None if settings.device == "auto" else settings.device,
        "dtype": None if settings.dtype == "auto" else settings.dtype,
    }
    words = [f"--{name}={value}" for name, value in options.items() if value is not None]
    words += [f"--lora={lora}" for lora in settings.loras]
    words += ["--dense"] if settings.reduction is None else []
    return shlex.join(["todome", "generate", *words, "-o", file, "--", settings.prompt])


def reduction_options(reduction: Reduction | None) -> dict[str, Any]:
    """Reduction as options of the command, without those that have their default."""
    if reduction is None:
        return {}
    levels = ",".join(map(str, as_tuple(getattr(reduction, reduction.level_field))))
    changed = {name: value for name, value in changed_fields(reduction).items() if name in ("phase", "start", "stop")}
    return {reduction.level_field: levels, **changed}


def changed_fields(reduction: Reduction) -> dict[str, Any]:
    """Fields of a reduction that differ from their default."""
    default = type(reduction)()
    given = {field.name: getattr(reduction, field.name) for field in fields(reduction)}  # pyright: ignore[reportArgumentType]
    return {name: value for name, value in given.items() if value != getattr(default, name)}


def snippet(settings: Settings, file: str, extras: Extras = PLAIN) -> str:
    """Python program: diffusers as always, and one line of todome."""
    embedded, reduction = settings.model == EMBEDDED, settings.reduction
    modules = ["diffusers", *["todome"] * bool(reduction), *["todome_flowers"] * embedded, "torch"]
    lines = [*(f"import {module}" for module in modules), *["from PIL import Image"] * bool(extras.start), ""]
    device = reachable_device(settings.device)
    lines += opening_lines(settings, device, torch_dtype(settings.dtype, device))
    lines += [*scheduler_lines(settings.scheduler), *lora_lines(extras), *start_lines(extras)]
    if reduction is not None:
        lines += [f"todome.apply(pipe, {reduction_code(reduction)})"]
    lines += ["picture = pipe(", *(f"    {argument}," for argument in call_arguments(settings, extras)), ").images[0]"]
    return "\n".join([*lines, f"picture.save({quote_text(file)})", ""])


def reduction_code(reduction: Reduction) -> str:
    """Python that makes the reduction. A plan is read from the file that the page offers."""
    if isinstance(reduction, Plan):
        return 'todome.Plan.load("plan.json")'
    given = ", ".join(f"{name}={value!r}" for name, value in changed_fields(reduction).items())
    return f"todome.{type(reduction).__name__}({given})"


def lora_lines(extras: Extras) -> list[str]:
    if not extras.lora:
        return []
    given = f'{quote_text(extras.lora)}, adapter_name="lora"'
    return [f"pipe.load_lora_weights({given})", f'pipe.set_adapters(["lora"], [{extras.weight}])']


def start_lines(extras: Extras) -> list[str]:
    if extras.start is None:
        return []
    kind = "AutoPipelineForInpainting" if extras.start.masked else "AutoPipelineForImage2Image"
    return [f"pipe = diffusers.{kind}.from_pipe(pipe)  # start.png has the size to draw"]


def scheduler_lines(name: str | None) -> list[str]:
    if name is None:
        return []
    kind, _, options = SCHEDULERS[name]
    given = "".join(f", {option}={value!r}" for option, value in options.items())
    return [f"pipe.scheduler = diffusers.{kind}.from_config(pipe.scheduler.config{given})"]


def call_arguments(settings: Settings, extras: Extras = PLAIN) -> list[str]:
    taken = extras.start is not None and not extras.start.masked  # image to image has the size of the picture
    width, height = (None, None) if taken else settings.size or (None, None)
    given = {
        "negative_prompt": quote_text(settings.negative) if settings.negative else None,
        "image": 'Image.open("start.png")' if extras.start else None,
        "mask_image": 'Image.open("mask.png")' if extras.start and extras.start.masked else None,
        "strength": extras.strength if extras.start else None,
        "width": width,
        "height": height,
        "num_inference_steps": settings.steps,
        "guidance_scale": settings.guidance,
        "generator": f"torch.Generator().manual_seed({settings.seed})",
    }
    return [quote_text(settings.prompt), *(f"{name}={value}" for name, value in given.items() if value is not None)]
