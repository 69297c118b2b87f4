"""Opens pipelines of diffusers: the embedded one, a folder, or a hub id; on a device, in a dtype, with a scheduler."""

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import invalid_value
from .devices import DTYPES as DTYPES
from .devices import clear_about_memory, reachable_device, torch_dtype

EMBEDDED = "todome-flowers"
Size = tuple[int, int]  # width, height


class Scheduler(NamedTuple):
    """A scheduler of diffusers: its class, what other tools call it, and what it needs beside the model's config."""

    kind: str
    title: str
    options: Mapping[str, Any] = MappingProxyType({})


UNCLIPPED = {"clip_sample": False}  # latents go beyond -1..1, where these clip unless told otherwise
SCHEDULERS = {
    "ddim": Scheduler("DDIMScheduler", "DDIM", UNCLIPPED),
    "ddpm": Scheduler("DDPMScheduler", "DDPM", {**UNCLIPPED, "variance_type": "fixed_small"}),
    "deis": Scheduler("DEISMultistepScheduler", "DEIS", {"algorithm_type": "deis"}),
    "dpm++": Scheduler("DPMSolverMultistepScheduler", "DPM++ 2M", {"algorithm_type": "dpmsolver++"}),
    "dpm++-sde": Scheduler("DPMSolverMultistepScheduler", "DPM++ 2M SDE", {"algorithm_type": "sde-dpmsolver++"}),
    "euler": Scheduler("EulerDiscreteScheduler", "Euler"),
    "euler-a": Scheduler("EulerAncestralDiscreteScheduler", "Euler a"),
    "heun": Scheduler("HeunDiscreteScheduler", "Heun", UNCLIPPED),
    "lcm": Scheduler("LCMScheduler", "LCM", UNCLIPPED),
    "pndm": Scheduler("PNDMScheduler", "PLMS", {"skip_prk_steps": True}),
    "unipc": Scheduler("UniPCMultistepScheduler", "UniPC"),
}


def open_pipeline(model: str | Path = EMBEDDED, device: str = "auto", dtype: str = "auto") -> Any:
    """A text-to-image pipeline, ready to be called.

    Args:
        model: "todome-flowers" (the embedded one), the folder of a pipeline, or an id on the Hugging Face hub.
        device: "auto" takes the GPU if there is one.
        dtype: "auto" is float16 on a GPU and float32 on a CPU.
    """
    where = reachable_device(device)
    precision = torch_dtype(dtype, where)
    folder = pipeline_folder(str(model))
    with quiet_loading() as diffusers:
        try:
            pipe = diffusers.DiffusionPipeline.from_pretrained(folder, dtype=precision, local_files_only=True)
        except (OSError, ValueError) as error:
            raise invalid_value(
                "model", str(model), "a pipeline that diffusers can open", f"It says: {first_sentence(error)}"
            ) from error
    check_text_to_image(pipe, str(model))
    with clear_about_memory(f"{model} on {where}", "Use float16, another device, or a smaller model"):
        return pipe.to(where)


def pipeline_folder(model: str) -> str:
    """Where a pipeline lies on this machine; one that is on the hub is downloaded."""
    if model == EMBEDDED:
        import todome_flowers

        return str(todome_flowers.path())
    folder = Path(model).expanduser()
    if folder.exists():
        if not (folder / "model_index.json").is_file():
            remedy = "Name the folder that save_pretrained made"
            raise invalid_value(
                "model", model, "a folder with a model_index.json, as diffusers saves pipelines", remedy
            )
        return str(folder)
    allowed = f'"{EMBEDDED}", an existing folder, or a hub id such as "stable-diffusion-v1-5/stable-diffusion-v1-5"'
    if model.count("/") != 1 or model[0] in "/.~":
        raise invalid_value("model", model, allowed, "Nothing is there: check the spelling")
    return downloaded(model, allowed)


def downloaded(model: str, allowed: str) -> str:
    from diffusers import DiffusionPipeline

    try:
        return str(DiffusionPipeline.download(model))
    except (OSError, ValueError):
        remedy = "Neither a folder here nor reachable on the hub: check the spelling and the network"
        raise invalid_value("model", model, allowed, remedy) from None


@contextmanager
def quiet_loading() -> Iterator[Any]:
    """diffusers without its notes and bars about every part of a pipeline."""
    import diffusers
    from diffusers.utils import logging as notes
    from transformers.utils import logging as bars

    before, loud, barred = notes.get_verbosity(), notes.is_progress_bar_enabled(), bars.is_progress_bar_enabled()
    notes.set_verbosity_error()
    notes.disable_progress_bar()
    bars.disable_progress_bar()
    try:
        yield diffusers
    finally:
        notes.set_verbosity(before)
        if loud:
            notes.enable_progress_bar()
        if barred:
            bars.enable_progress_bar()


def first_sentence(error: Exception) -> str:
    return str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")


def check_text_to_image(pipe: Any, model: str) -> None:
    options = inspect.signature(pipe.__call__).parameters
    if "prompt" not in options or "num_frames" in options or denoiser(pipe) is None:
        remedy = f"{type(pipe).__name__} makes something else, or from something else"
        raise invalid_value("model", model, "a pipeline that makes a picture from a text", remedy)


def denoiser(pipe: Any) -> Any:
    return getattr(pipe, "unet", None) or getattr(pipe, "transformer", None)


@contextmanager
def scheduled(pipe: Any, name: str | None) -> Iterator[None]:
    """The pipeline with a scheduler of that name, made from the config of its own; without a name, with its own."""
    own = pipe.scheduler
    if name is not None:
        pipe.scheduler = scheduler_named(name, own.config)
    try:
        yield
    finally:
        pipe.scheduler = own


def check_scheduler(name: str | None) -> None:
    if name is not None and name not in SCHEDULERS:
        raise invalid_value("scheduler", name, ", ".join(SCHEDULERS), "Leave it out to keep the model's own")


def scheduler_named(name: str, config: Any) -> Any:
    check_scheduler(name)
    kind, _, options = SCHEDULERS[name]
    with quiet_loading() as diffusers:
        return getattr(diffusers, kind).from_config(config, **options)


def sampler_title(scheduler: Any) -> str:
    """What other tools call a scheduler; its class where it has no such name."""
    kind, algorithm = type(scheduler).__name__, scheduler.config.get("algorithm_type")
    for known in SCHEDULERS.values():
        if known.kind == kind and known.options.get("algorithm_type", algorithm) == algorithm:
            return known.title
    return kind


def size_step(pipe: Any) -> int:
    """Of what number the sides of a pipeline's pictures are multiples, in pixels."""
    pixels = getattr(getattr(pipe, "image_processor", None), "config", {}).get("vae_scale_factor", 1)
    patch = denoiser(pipe).config.get("patch_size") or 1  # of a transformer; UNets take any latents
    return math.lcm(8, pixels * patch)  # 8 is what the pipelines of diffusers ask for, whatever their autoencoder


def check_size(pipe: Any, size: Size) -> None:
    step = size_step(pipe)
    if all(side > 0 and side % step == 0 for side in size):
        return
    smaller = [max(1, side // step) * step for side in size]
    larger = [max(1, -(-side // step)) * step for side in size]
    near = " and ".join(dict.fromkeys([format_size(smaller), format_size(larger)]))
    raise invalid_value("size", format_size(size), f"multiples of {step} pixels for this model", f"The nearest: {near}")


def format_size(size: Sequence[int]) -> str:
    return "x".join(map(str, size))
