"""Packages of others that todome is measured beside. None is needed unless it is asked for."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

from torch import nn

from ...errors import invalid_value
from ...hooks.attaching import unwrapped
from ...patch import is_pipeline


class StepKind(NamedTuple):
    """One kind of step of a method: its share of the steps, and what to do before one of them."""

    share: float
    begin: Callable[[], Any]


SAME_STEPS = (StepKind(1.0, lambda: None),)  # every step costs the same


class Peer(ABC):
    """Code of others that can be put on a model."""

    capturable: ClassVar[bool] = True  # whether a CUDA graph can hold it

    @abstractmethod
    def on(self, target: Any) -> AbstractContextManager[Sequence[StepKind]]:
        """Puts it on a pipeline or a bare UNet, and takes it off at the end."""


def package(name: str, pip: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(f"This method needs {name}, which is missing. Install it: pip install {pip}.") from error


def unet_of(target: Any) -> Any:
    model = unwrapped(target.unet if is_pipeline(target) and hasattr(target, "unet") else target)
    if not isinstance(model, nn.Module) or not hasattr(model, "down_blocks"):
        allowed = "a UNet of diffusers, which is all that the packages of others know"
        raise invalid_value("model", type(target).__name__, allowed, "Measure it with dense, todome, todo and tome")
    return model


def finest_attention(unet: Any) -> int:
    """How many times the latents are halved before the first attention, as packages of others count in `2**n`."""
    return next(i for i, block in enumerate(unet.down_blocks) if hasattr(block, "attentions"))


@contextmanager
def tomesd_patch(model: nn.Module, ratio: float = 0.5, *, finest: int = 0, random: bool = False) -> Iterator[None]:
    """A model with tomesd on it. Without its random draws, which no CUDA graph holds, it is faster."""
    tomesd = package("tomesd", "tomesd==0.1.3")
    tomesd.apply_patch(model, ratio=ratio, max_downsample=2**finest, use_rand=random)
    try:
        yield
    finally:
        tomesd.remove_patch(model)


@dataclass(frozen=True)
class Tomesd(Peer):
    """tomesd (arXiv 2303.17604), at the finest level that has attention: with its default it does nothing on SDXL."""

    ratio: float = 0.5

    @contextmanager
    def on(self, target: Any) -> Iterator[Sequence[StepKind]]:
        unet = unet_of(target)
        with tomesd_patch(unet, self.ratio, finest=finest_attention(unet), random=is_pipeline(target)):
            yield SAME_STEPS  # a bare UNet is timed


@dataclass(frozen=True)
class CaTome(Peer):
    """ca-tome (arXiv 2501.00946): merges what is more alike than a threshold, matches anew only in some of 50 steps."""

    capturable = False  # it reads from the device how many tokens it merges
    threshold: float = 0.7

    @contextmanager
    def on(self, target: Any) -> Iterator[Sequence[StepKind]]:
        install = "--no-deps ca-tome==0.1.3"  # its pins are older than ours
        unet, patching = unet_of(target), package("ca_tome.patch", install)
        steps = package("ca_tome.confs", install).CacheConf.CONFIG_3
        patching.apply_patch(unet, compute_on=steps, r=self.threshold, max_downsample=2 ** finest_attention(unet))
        counter = StepCounter([module for module in unet.modules() if hasattr(module, "attn1")])
        hook = unet.register_forward_pre_hook(counter.before, with_kwargs=True) if is_pipeline(target) else None
        matches = len(steps) / 50
        try:
            yield (
                StepKind(matches, lambda: counter.go_to(steps[0])),
                StepKind(1 - matches, lambda: counter.go_to(steps[0] + 1)),
            )
        finally:
            if hook is not None:
                hook.remove()
            patching.remove_patch(unet)


class StepCounter:
    """Tells every block in which step of a run it is called, as ca-tome's own copy of the pipeline would."""

    def __init__(self, blocks: list[Any]) -> None:
        self.blocks, self.step, self.timestep = blocks, 0, -1.0

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        timestep = float(kwargs["timestep"] if "timestep" in kwargs else args[1])
        self.step = 0 if timestep > self.timestep else self.step + 1  # timesteps fall in a run
        self.timestep = timestep
        self.go_to(self.step)

    def go_to(self, step: int) -> None:
        for block in self.blocks:
            block.inference_step = step


@dataclass(frozen=True)
class DeepCache(Peer):
    """DeepCache (arXiv 2312.00858): the deep part of the UNet is computed in one step of an interval, and reused."""

    interval: int = 3

    @contextmanager
    def on(self, target: Any) -> Iterator[Sequence[StepKind]]:
        package("DeepCache", "DeepCache==0.1.1")
        extension, unet = package("DeepCache.extension.deepcache", "DeepCache==0.1.1"), unet_of(target)
        host = target if is_pipeline(target) else SimpleNamespace(unet=unet)
        helper = extension.DeepCacheSDHelper(pipe=host)
        helper.set_params(cache_interval=self.interval, cache_branch_id=0)
        helper.enable()
        if host is not target:
            unet.forward = helper.function_dict["unet_forward"]  # its own way to the step reads from the device

        def go_to(step: int) -> None:
            helper.cur_timestep, helper.start_timestep = step, 0

        try:
            yield StepKind(1 / self.interval, lambda: go_to(0)), StepKind(1 - 1 / self.interval, lambda: go_to(1))
        finally:
            helper.disable()


PEERS: dict[str, Callable[..., Peer]] = {"tomesd": Tomesd, "ca-tome": CaTome, "deepcache": DeepCache}
