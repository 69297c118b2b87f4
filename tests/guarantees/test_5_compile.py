"""Guarantee 5 on a CPU: one whole graph (two with a window), never compiled again, equal to eager."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from promises import assert_same_run, steps_of
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from versions import compile_blocks, needs_hooks_in_graphs, needs_shared_graphs
from zoo import Host, host_named, mini_sdxl, mini_unet, run, unet_inputs
from zoo.inputs import sdxl_inputs

import todome
from todome import Downsample, Merge

thorough = pytest.mark.thorough
REDUCTIONS = [
    Downsample(factor=2),
    pytest.param(Downsample(factor=1.5, phase="random"), marks=thorough),
    pytest.param(Downsample(factor=2, phase="fixed"), marks=thorough),
    Merge(random=False, cross_attention=True, feed_forward=True),
]
pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), needs_hooks_in_graphs]


@pytest.fixture
def counter() -> CompileCounterWithBackend:
    return CompileCounterWithBackend("aot_eager")


def two_layers() -> Any:
    return mini_unet(transformer_layers_per_block=2)


def eager_run(reduction: Any, build: Callable[[], Any] = mini_unet) -> list[Tensor]:
    model = build()
    return steps_of(model, todome.apply(model, reduction))


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_a_run_is_one_graph_and_equal_to_eager(reduction: Any, counter: CompileCounterWithBackend):
    model = two_layers()
    patch = todome.apply(model, reduction)
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch._dynamo.config.patch(error_on_recompile=True):
        outputs = steps_of(compiled, patch)
    assert counter.frame_count == 1
    assert_same_run(outputs, eager_run(reduction, two_layers))


def test_a_bare_model_dithers_with_every_timestep_of_the_one_graph(counter: CompileCounterWithBackend):
    model = mini_unet()
    todome.apply(model, Downsample(factor=2))
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    timesteps = [torch.tensor(500.0 - number / 1000) for number in range(8)]  # which change nothing but the step
    with torch._dynamo.config.patch(error_on_recompile=True):
        outputs = [run(compiled, **unet_inputs() | {"timestep": timestep}) for timestep in timesteps]
    assert counter.frame_count == 1
    assert not torch.allclose(outputs[0], outputs[1], atol=1e-4)
    torch.testing.assert_close(outputs[4], outputs[0], rtol=1e-3, atol=1e-3)  # 2 x 2 phases later


both = pytest.mark.parametrize("reduction", [pytest.param(Downsample(factor=2), marks=thorough), Merge()], ids=str)


@pytest.mark.parametrize("reduction", [Downsample(factor=2, stop=0.5), pytest.param(Merge(), marks=thorough)], ids=str)
def test_compile_repeated_blocks(reduction: Any, counter: CompileCounterWithBackend):
    model = two_layers()
    patch = todome.apply(model, reduction)
    compile_blocks(model, fullgraph=True, backend=counter)
    outputs = steps_of(model, patch)
    compiled = counter.frame_count
    with torch._dynamo.config.patch(error_on_recompile=True):
        steps_of(model, patch)
    assert counter.frame_count == compiled
    assert_same_run(outputs, eager_run(reduction, two_layers))


@thorough
@needs_shared_graphs
@pytest.mark.parametrize("reduction", [Downsample(factor=2), Merge()], ids=str)
def test_compile_repeated_blocks_of_a_deep_model(reduction: Any, counter: CompileCounterWithBackend):
    """SDXL has 10 blocks at its first level alone, and torch gives up on a function that it compiled 8 times."""
    deep = lambda: mini_unet(transformer_layers_per_block=10)  # noqa: E731
    eager = steps_of(plain := deep(), todome.apply(plain, reduction), 2)
    model = deep()  # another one: a patch that has met its grids already would have its tables made
    patch = todome.apply(model, reduction)
    compile_blocks(model, fullgraph=True, backend=counter)
    assert_same_run(steps_of(model, patch, 2), eager)


@pytest.mark.parametrize(
    ("host", "reduction"),
    [
        pytest.param(Host("sdxl", mini_sdxl, sdxl_inputs), Downsample(factor=2), marks=thorough),
        (host_named("sgm"), Downsample(factor=2)),
        pytest.param(host_named("sgm"), Merge(), marks=thorough),
    ],
    ids=str,
)
def test_other_hosts_are_one_graph_too(host: Host, reduction: Any, tracer: CompileCounterWithBackend):
    model = host.build()
    patch = todome.apply(model, reduction)
    eager = steps_of(model, patch, 4, **host.inputs())
    with torch._dynamo.config.patch(error_on_recompile=True):
        outputs = steps_of(torch.compile(model, fullgraph=True, backend=tracer), patch, 4, **host.inputs())
    assert tracer.frame_count == 1
    assert_same_run(outputs, eager)


@pytest.mark.thorough
@both
def test_a_second_size_compiles_once_more_and_never_again(reduction: Any, tracer: CompileCounterWithBackend):
    model = mini_unet()
    patch = todome.apply(model, reduction)
    compiled = torch.compile(model, fullgraph=True, backend=tracer)
    sizes = [unet_inputs(grid=(16, 18)), unet_inputs(grid=(12, 20))]
    outputs = [steps_of(compiled, patch, 4, **inputs) for inputs in sizes]
    assert tracer.frame_count == 2
    with torch._dynamo.config.patch(error_on_recompile=True):
        again = [steps_of(compiled, patch, 4, **inputs) for inputs in sizes]
    for inputs, ours, ours_again in zip(sizes, outputs, again, strict=True):
        assert_same_run(ours, steps_of(small := mini_unet(), todome.apply(small, reduction), 4, **inputs))
        assert_same_run(ours_again, ours)


def whole(model: nn.Module, backend: Any) -> Any:
    return torch.compile(model, fullgraph=True, backend=backend)


def in_place(model: nn.Module, backend: Any) -> Any:
    model.compile(fullgraph=True, backend=backend)
    return model


def by_block(model: Any, backend: Any) -> Any:
    compile_blocks(model, fullgraph=True, backend=backend)
    return model


@pytest.mark.parametrize(
    "compiled_by", [whole, pytest.param(in_place, marks=thorough), pytest.param(by_block, marks=thorough)]
)
def test_apply_replace_and_remove_after_compile_are_noticed(compiled_by: Callable, tracer: CompileCounterWithBackend):
    model = mini_unet()
    dense = run(model, **unet_inputs())
    compiled = compiled_by(model, tracer)
    torch.testing.assert_close(run(compiled, **unet_inputs()), dense, rtol=1e-4, atol=1e-5)
    for reduction in (Downsample(factor=2), Merge()):
        patch = todome.apply(compiled, reduction)
        outputs = steps_of(compiled, patch, 2)
        assert not torch.allclose(outputs[0], dense, atol=1e-4)
        assert_same_run(outputs, steps_of(small := mini_unet(), todome.apply(small, reduction), 2))
    patch.remove()
    torch.testing.assert_close(run(compiled, **unet_inputs()), dense, rtol=1e-4, atol=1e-5)


@thorough
def test_compiled_gradients_equal_eager_ones(counter: CompileCounterWithBackend):
    """Of merging; those of reduced keys are among the training tests, with checkpoints."""

    def gradients(compiled: bool) -> list[Tensor]:
        model = mini_unet()
        patch = todome.apply(model, Merge())
        patch.at(3, 10)
        called: Any = torch.compile(model, fullgraph=True, backend=counter) if compiled else model
        loss = called(**unet_inputs()).sample.square().mean()
        return list(torch.autograd.grad(loss, list(model.parameters())))

    torch.testing.assert_close(gradients(True), gradients(False), rtol=1e-3, atol=1e-5)
