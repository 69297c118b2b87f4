"""Drawing of pictures: from Settings to a Generated picture, which knows what its file is to say."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..errors import invalid_value
from ..patch import apply
from . import pipelines
from .devices import explain_out_of_memory
from .metadata import settings_of, settings_texts
from .pipelines import Size, check_size, format_size
from .schedulers import sampler_title, use_scheduler
from .settings import Settings, recommended_settings
from .suspending import suspended
from .timing import Stopwatch

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "Generated",
    "Settings",
    "Step",
    "make_picture",
    "make_pictures",
    "open_for",
    "recommended_settings",
    "settings_of",
]


class Generated(NamedTuple):
    """A picture, the settings it was really made with, and how it went."""

    picture: "Image"
    settings: Settings
    sampler: str
    seconds: float
    reduced: str  # what was reduced, level by level

    def texts(self) -> dict[str, str]:
        """Texts for a PNG file: all settings for `settings_of`, and the lines that other tools read."""
        return settings_texts(self.settings, self.sampler)


class Step(NamedTuple):
    """Progress of a picture: how many of its steps are done, and the latents after them."""

    done: int
    steps: int
    latents: torch.Tensor


def open_for(settings: Settings) -> Any:
    """The pipeline that these settings name, with its LoRAs and its VAE."""
    parts: dict[str, Any] = {"loras": settings.loras, "vae": settings.vae}
    return pipelines.open_pipeline(settings.model, settings.device, settings.dtype, **parts)


def make_picture(
    settings: Settings,
    pipe: Any = None,
    on_step: Callable[[Step], None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Generated:
    """Makes one picture. The same settings give the same picture.

    Args:
        settings: What is wanted.
        pipe: The pipeline, where it is open already: `open_for(settings)`. It is left as it was; a patch that it has is
            off while the picture is made.
        on_step: Called after every step, if the pipeline reports them; its time is not counted. What it raises ends
            the picture.
        more: Further options of the pipeline's call, such as the `image` that some start from.
    """
    pipe = open_for(settings) if pipe is None else pipe
    return make_pictures([settings], pipe, on_step, more)[0]


def make_pictures(
    settings: Sequence[Settings],
    pipe: Any,
    on_step: Callable[[Step], None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> list[Generated]:
    """Makes pictures in one call of the pipeline. Each starts from the noise of its own seed, whoever is beside it.

    Args:
        settings: Of each picture; they may differ in prompt, negative prompt and seed.
        pipe, on_step, more: As in `make_picture`. The seconds of a picture are its share of the call's.
    """
    first = settings[0]
    options, stopwatch = {**call_options(pipe, first), **(more or {})}, Stopwatch(pipe.device)
    if on_step is not None:
        options |= step_callback(pipe, first, on_step, stopwatch)
    with (
        suspended(pipe),
        use_scheduler(pipe, first.scheduler),
        apply(pipe, first.reduction) if first.reduction else nullcontext() as patch,
    ):
        sampler = sampler_title(pipe.scheduler)
        pictures, reduced = call_pipeline(pipe, settings, options), str(patch or "dense")
    seconds = stopwatch.seconds() / len(settings)
    made = [complete_settings(pipe, one, picture.size) for one, picture in zip(settings, pictures, strict=True)]
    return [Generated(picture, one, sampler, seconds, reduced) for picture, one in zip(pictures, made, strict=True)]


def step_callback(
    pipe: Any, settings: Settings, on_step: Callable[[Step], None], stopwatch: Stopwatch
) -> dict[str, Any]:
    """The option with which a pipeline reports its steps, where it has one."""
    if "callback_on_step_end" not in inspect.signature(pipe.__call__).parameters:
        return {}

    def report(pipe: Any, step: int, _: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        steps = getattr(pipe, "num_timesteps", 0) or settings.steps or step + 1
        with stopwatch.pause():
            on_step(Step(step + 1, steps, tensors["latents"]))
        return tensors

    return {"callback_on_step_end": report}


def call_pipeline(pipe: Any, settings: Sequence[Settings], options: dict[str, Any], output: str = "pil") -> Any:
    """The pictures of one call, in the form that the pipeline calls `output`."""
    noise = [torch.Generator().manual_seed(one.seed) for one in settings]  # of the CPU: alike on every device
    size = f"{format_size(settings[0].size)} pixels" if settings[0].size else "pictures of this size"
    several = len(settings) > 1
    what = f"{len(settings)} pictures of {size} at once" if several else size
    remedy = f"Lower the {'batch or the ' if several else ''}size, use float16, or a larger factor"
    if "negative_prompt" in options:
        options = options | {"negative_prompt": [one.negative for one in settings]}
    options = options if output == "pil" else options | {"output_type": output}
    with explain_out_of_memory(what, remedy):
        return pipe([one.prompt for one in settings], generator=noise, **options).images


def call_options(pipe: Any, settings: Settings) -> dict[str, Any]:
    """Options to call the pipeline with: only what was asked for, and only what it knows."""
    if settings.size is not None:
        check_size(pipe, settings.size)
    width, height = settings.size or (None, None)
    wanted = {
        "negative_prompt": settings.negative or None,
        "num_inference_steps": settings.steps,
        "guidance_scale": settings.guidance,
        "width": width,
        "height": height,
    }
    options = {option: value for option, value in wanted.items() if value is not None}
    for option in options.keys() - inspect.signature(pipe.__call__).parameters.keys():
        raise invalid_value(option, options[option], f"nothing, {type(pipe).__name__} does not take it", "Leave it out")
    return options


def complete_settings(pipe: Any, settings: Settings, size: Size) -> Settings:
    """The settings with what was left to the pipeline filled in."""
    parameters = inspect.signature(pipe.__call__).parameters
    own = {name: getattr(parameters.get(name), "default", None) for name in ("num_inference_steps", "guidance_scale")}
    return replace(
        settings,
        size=size,
        steps=own["num_inference_steps"] if settings.steps is None else settings.steps,
        guidance=own["guidance_scale"] if settings.guidance is None else settings.guidance,
        device=str(pipe.device),
        dtype=str(pipe.dtype).removeprefix("torch."),
    )
