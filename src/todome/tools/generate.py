"""Makes pictures: what is wanted as Settings, what came of it as Generated, which PNG files carry."""

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import __version__
from ..errors import invalid_value
from ..hooks.suspending import suspended
from ..patch import NothingToReduce, Patch, apply
from ..reductions import Downsample, Merge, Reduction, is_number
from .pipelines import (
    EMBEDDED,
    Size,
    check_scheduler,
    check_size,
    clear_about_memory,
    format_size,
    open_pipeline,
    sampler_title,
    scheduled,
)
from .timing import now

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Settings:
    """Everything a picture depends on.

    Args: Important
        prompt: What to draw.
        negative: What to keep away from.
        model: "todome-flowers" (the embedded one), the folder of a pipeline, or an id on the Hugging Face hub.
        seed: Of the noise it starts from.
        reduction: `Downsample(...)`, `Merge(...)`, or None for dense.

    Args: Left to the pipeline where they are None
        size: Width and height in pixels.
        steps: How many.
        guidance: How much the prompt counts.
        scheduler: One of `todome.pipelines.SCHEDULERS`.

    Args: Machine
        device: "auto" takes the GPU if there is one.
        dtype: "auto" is float16 on a GPU and float32 on a CPU.
    """

    prompt: str = ""
    negative: str = ""
    model: str = EMBEDDED
    seed: int = 0
    size: Size | None = None
    steps: int | None = None
    guidance: float | None = None
    scheduler: str | None = None
    reduction: Reduction | None = None
    device: str = "auto"
    dtype: str = "auto"

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise invalid_value("seed", self.seed, "a whole number from 0 to 2**63 - 1", "The default is seed=0")
        if self.steps is not None and self.steps < 1:
            raise invalid_value("steps", self.steps, "a whole number of at least 1", "25 is a good start")
        if self.guidance is not None and not (is_number(self.guidance) and 0 <= self.guidance < math.inf):
            raise invalid_value(
                "guidance", self.guidance, "a number of at least 0", "1 is no guidance, 3 to 8 is usual"
            )
        check_scheduler(self.scheduler)


def recommended(model: str = EMBEDDED) -> Settings:
    """What suits a model: the embedded one is known, others know their own defaults."""
    if model == EMBEDDED:
        return Settings(size=(256, 256), steps=25, guidance=3.0, reduction=Downsample(2))
    return Settings(model=model, reduction=Downsample("auto"))


class Generated(NamedTuple):
    """A picture, the settings it was really made with, and how it went."""

    picture: "Image"
    settings: Settings
    sampler: str
    seconds: float
    reduced: str  # what was reduced, level by level

    def texts(self) -> dict[str, str]:
        """What a PNG file carries: all settings for `settings_of`, and the lines that other tools read."""
        return {"todome": as_json(self.settings, self.sampler), "parameters": as_infotext(self.settings, self.sampler)}


class Step(NamedTuple):
    """How far a picture is: so many of the steps are done, and this came of them."""

    done: int
    steps: int
    latents: torch.Tensor


class Watch:
    """The seconds that a device works, but for the pauses."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.paused = device, 0.0
        self.began = now(device)

    @contextmanager
    def pause(self) -> Iterator[None]:
        began = now(self.device)
        yield
        self.paused += now(self.device) - began

    def seconds(self) -> float:
        return now(self.device) - self.began - self.paused


def make_picture(settings: Settings, pipe: Any = None, on_step: Callable[[Step], None] | None = None) -> Generated:
    """Makes one picture. The same settings give the same picture.

    Args:
        settings: What is wanted.
        pipe: The pipeline, where it is open already: `open_pipeline(settings.model)`. It is left as it was; a patch
            that it has is off while the picture is made.
        on_step: Called after every step, if the pipeline tells of them; its time is not counted. What it raises ends
            the picture.
    """
    pipe = open_pipeline(settings.model, settings.device, settings.dtype) if pipe is None else pipe
    options, watch = call_options(pipe, settings), Watch(pipe.device)
    if on_step is not None:
        options |= stepwise(pipe, settings, on_step, watch)
    with suspended(pipe), scheduled(pipe, settings.scheduler), reduced(pipe, settings.reduction) as patch:
        sampler = sampler_title(pipe.scheduler)
        picture = called(pipe, settings, options)
    return Generated(picture, as_made(pipe, settings, picture.size), sampler, watch.seconds(), str(patch or "dense"))


def stepwise(pipe: Any, settings: Settings, on_step: Callable[[Step], None], watch: Watch) -> dict[str, Any]:
    """The option with which a pipeline tells of its steps, where it has one."""
    if "callback_on_step_end" not in inspect.signature(pipe.__call__).parameters:
        return {}

    def tell(pipe: Any, step: int, _: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        with watch.pause():
            on_step(Step(step + 1, getattr(pipe, "num_timesteps", 0) or settings.steps or step + 1, tensors["latents"]))
        return tensors

    return {"callback_on_step_end": tell}


def called(pipe: Any, settings: Settings, options: dict[str, Any]) -> "Image":
    noise = torch.Generator().manual_seed(settings.seed)  # of the CPU, so that every device starts from the same
    size = f"{format_size(settings.size)} pixels" if settings.size else "pictures of this size"
    with clear_about_memory(size, "Lower the size, use float16, or a larger factor"):
        return pipe(settings.prompt, generator=noise, **options).images[0]


def call_options(pipe: Any, settings: Settings) -> dict[str, Any]:
    """What the pipeline is called with: only what was asked for, and only what it knows."""
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


@contextmanager
def reduced(pipe: Any, reduction: Reduction | None) -> Iterator[Patch | None]:
    """The pipeline with the reduction on it, which is taken off whatever happens."""
    if reduction is None:
        yield None
        return
    try:
        patch = apply(pipe, reduction)
    except NothingToReduce:
        allowed = f"none for {type(pipe).__name__}, whose attention todome cannot reduce"
        raise invalid_value("reduction", reduction, allowed, "Make the picture with --dense", NothingToReduce) from None
    with patch:
        yield patch


def as_made(pipe: Any, settings: Settings, size: Size) -> Settings:
    """The settings with what was left to the pipeline filled in."""
    known = inspect.signature(pipe.__call__).parameters
    own = {name: getattr(known.get(name), "default", None) for name in ("num_inference_steps", "guidance_scale")}
    return replace(
        settings,
        size=size,
        steps=own["num_inference_steps"] if settings.steps is None else settings.steps,
        guidance=own["guidance_scale"] if settings.guidance is None else settings.guidance,
        device=str(pipe.device),
        dtype=str(pipe.dtype).removeprefix("torch."),
    )


def as_json(settings: Settings, sampler: str) -> str:
    import diffusers

    reduction = settings.reduction
    named = reduction and {"name": type(reduction).__name__, **vars(reduction)}
    versions = {"todome": __version__, "torch": torch.__version__, "diffusers": diffusers.__version__}
    return json.dumps({**asdict(settings), "reduction": named, "sampler": sampler, "versions": versions})


def as_infotext(settings: Settings, sampler: str) -> str:
    """The settings as stable-diffusion-webui writes them, which many tools read."""
    facts = {
        "Steps": settings.steps,
        "Sampler": sampler,
        "CFG scale": settings.guidance and f"{settings.guidance:g}",
        "Seed": settings.seed,
        "Size": settings.size and format_size(settings.size),
        "Model": Path(settings.model).name,
        "Token reduction": settings.reduction and json.dumps(str(settings.reduction)),
        "Version": f"todome {__version__}",
    }
    lines = [settings.prompt, f"Negative prompt: {settings.negative}" if settings.negative else ""]
    lines.append(", ".join(f"{name}: {fact}" for name, fact in facts.items() if fact is not None))
    return "\n".join([lines[0], *filter(None, lines[1:])])


def settings_of(path: Path) -> Settings:
    """The settings a picture was made with, from its file."""
    from .pictures import read_texts

    allowed = "a PNG file that todome made"
    try:
        found = json.loads(read_texts(path)["todome"])
        settings = {name: found[name] for name in Settings.__dataclass_fields__}
        size = settings["size"]
        return Settings(**{**settings, "size": size and tuple(size), "reduction": reduction_of(settings["reduction"])})
    except OSError:
        raise invalid_value("like", str(path), allowed, "There is no picture of that name", FileNotFoundError) from None
    except (KeyError, TypeError, ValueError):
        raise invalid_value("like", str(path), allowed, "This one has no settings of todome in it") from None


def reduction_of(named: Mapping[str, Any] | None) -> Reduction | None:
    if named is None:
        return None
    kind = {"Downsample": Downsample, "Merge": Merge}[named["name"]]
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in named.items()}
    return kind(**{name: value for name, value in fields.items() if name != "name"})
