"""Schedulers of diffusers by short names, and what other tools call them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import invalid_value
from .quiet import quiet_loading


class Scheduler(NamedTuple):
    """A scheduler of diffusers: its class, what other tools call it, and what it needs beside the model's config."""

    kind: str
    title: str
    options: Mapping[str, Any] = MappingProxyType({})


UNCLIPPED = {"clip_sample": False}  # latents go beyond -1..1, where these clip by default
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


def check_scheduler(name: str | None) -> None:
    if name is not None and name not in SCHEDULERS:
        raise invalid_value("scheduler", name, ", ".join(SCHEDULERS), "Leave it out to keep the model's own")


def make_scheduler(name: str, config: Any) -> Any:
    """Scheduler of that name, with the config of another one."""
    check_scheduler(name)
    kind, _, options = SCHEDULERS[name]
    with quiet_loading() as diffusers:
        return getattr(diffusers, kind).from_config(config, **options)


@contextmanager
def use_scheduler(pipe: Any, name: str | None) -> Iterator[None]:
    """The pipeline with a scheduler of that name, made from the config of its own; without a name, with its own."""
    own = pipe.scheduler
    if name is not None:
        pipe.scheduler = make_scheduler(name, own.config)
    try:
        yield
    finally:
        pipe.scheduler = own


def sampler_title(scheduler: Any) -> str:
    """What other tools call a scheduler; its class where it has no such name."""
    kind, algorithm = type(scheduler).__name__, scheduler.config.get("algorithm_type")
    for entry in SCHEDULERS.values():
        if entry.kind == kind and entry.options.get("algorithm_type", algorithm) == algorithm:
            return entry.title
    return kind
