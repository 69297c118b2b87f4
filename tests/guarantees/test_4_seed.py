"""Guarantee 4: the same seed gives the same picture."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from promises import BLOCKS, among, both, gradients, over, over_blocks, reduced
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from zoo import Host, ldm_unet, recorded, reduced_everywhere, run

import todome
from todome import Downsample, Merge


@both
@over_blocks
def test_the_same_step_gives_the_same_output_and_another_seed_another_one(host: Host, kind: type):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    outputs = []
    for step in (3, 4, 3):
        patch.at(step, 10)
        outputs.append(host.run(target))
    patch.remove()
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], reduced(host, target, kind))
    assert not torch.equal(outputs[0], reduced(host, target, kind, seed=1))


@both
@over_blocks
def test_both_halves_of_a_batch_get_the_same_choice(host: Host, kind: type):
    inputs = host.inputs(1)
    twice = tree_map(lambda x: x.repeat(2, *[1] * (x.ndim - 1)) if isinstance(x, Tensor) and x.ndim else x, inputs)
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    with recorded(target, r"\.to_k$") as seen:
        patch.at(3, 10)
        run(target, **twice)
    for calls in seen.values():
        first, second = calls[0].chunk(2)
        torch.testing.assert_close(first, second)


@both
@among("sd1", "sdxl", "ldm1", "ldm2")
def test_guidance_in_one_batch_or_in_two_calls_is_the_same(host: Host, kind: type):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    patch.at(3, 10)
    together = host.run(target)
    for half in (0, 1):
        alone = tree_map(lambda x, i=half: x[i : i + 1] if isinstance(x, Tensor) and x.ndim else x, host.inputs())
        torch.testing.assert_close(run(target, **alone), together[half : half + 1], rtol=1e-4, atol=1e-5)


def with_checkpoints(host: Host) -> Any:
    """The same model as `host.build()`, with gradient checkpointing on."""
    if host.name == "ldm1":
        return ldm_unet(use_checkpoint=True)
    model: Any = host.build()
    model.enable_gradient_checkpointing()
    return model


CHECKPOINTED = [
    host for host in BLOCKS if getattr(host.build(), "_supports_gradient_checkpointing", False) or host.name == "ldm1"
]
over_checkpointed = over(CHECKPOINTED)
# ldm's own checkpoint asks for autocast on a GPU, in the way of years ago.
ldm_checkpoint_warns = pytest.mark.filterwarnings(
    r"ignore:torch.get_autocast_gpu_dtype\(\) is deprecated:DeprecationWarning",
    r"ignore:`torch.cuda.amp.autocast\(args...\)` is deprecated:FutureWarning",
    r"ignore:User provided device_type of 'cuda', but CUDA is not available:UserWarning",
)


def patched_gradients(host: Host, model: nn.Module, kind: type, inputs: list[dict[str, Any]]) -> list[Tensor]:
    with todome.apply(model, reduced_everywhere(kind, host)):
        return gradients(model, inputs)


@ldm_checkpoint_warns
@pytest.mark.parametrize("calls", [1, pytest.param(2, marks=pytest.mark.thorough)])
@both
@over_checkpointed
def test_gradient_checkpointing_gives_equal_gradients(host: Host, kind: type, calls: int):
    """Also of two calls before a backward pass, as consistency losses make them."""
    inputs = [host.inputs() for _ in range(calls)]
    plain = patched_gradients(host, host.build(), kind, inputs)
    torch.testing.assert_close(patched_gradients(host, with_checkpoints(host), kind, inputs), plain)
    assert not torch.allclose(plain[0], gradients(host.build(), inputs)[0], rtol=1e-3)


def rng_states() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


@over_blocks
def test_the_global_generators_are_untouched(host: Host):
    target = host.build()
    before = rng_states()
    for reduction in (Downsample(factor=2), Downsample(factor=2, phase="random"), Merge()):
        with todome.apply(target, reduction):
            host.run(target)
        assert rng_states() == before, reduction
