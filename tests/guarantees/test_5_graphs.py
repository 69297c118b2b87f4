"""Guarantee 5, further: any number of sizes in one graph, graphs around the model, export, and what is refused."""

import warnings
from typing import Any

import pytest
import torch
from promises import assert_same_run
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from versions import needs_dynamic_tables, needs_hooks_in_graphs
from zoo import mini_unet, noise, run, text, two_levels_unet, unet_inputs

import todome
from todome import Downsample, Merge

GRIDS = [(14, 18), (12, 20), (10, 10), (14, 22), (9, 11), (17, 13), (20, 8), (22, 12), (11, 19), (18, 18)]
EVEN = [(12, 20), (20, 12), (8, 12), (24, 20), (12, 28), (28, 8), (20, 20), (36, 12), (12, 12), (24, 24)]
thorough = pytest.mark.thorough
pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), needs_hooks_in_graphs]
both = pytest.mark.parametrize("reduction", [Downsample(factor=2), Merge()], ids=lambda r: type(r).__name__)


def outputs_of(model: Any, patch: todome.Patch, grids: list[tuple[int, int]]) -> list[Tensor]:
    found = []
    for number, grid in enumerate(grids):
        patch.at(number % 5, 10)
        found.append(run(model, **unet_inputs(2, grid)))
    return found


@thorough
@needs_dynamic_tables
def test_ten_sizes_are_one_dynamic_graph(tracer: CompileCounterWithBackend):
    reduction = Downsample(factor=(2, 2))
    model, plain = two_levels_unet(), two_levels_unet()
    patch = todome.apply(model, reduction)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=tracer)
    outputs = outputs_of(compiled, patch, EVEN)
    assert tracer.frame_count == 1
    assert_same_run(outputs, outputs_of(plain, todome.apply(plain, reduction), EVEN))


@pytest.mark.thorough
@needs_dynamic_tables
@pytest.mark.parametrize("reduction", [Downsample(factor=2), pytest.param(Merge(), marks=thorough)], ids=str)
def test_ten_sizes_are_no_error_and_equal_to_eager(reduction: Any, tracer: CompileCounterWithBackend):
    """Cells of odd grids differ in size, which is another kind of table."""
    model, plain = mini_unet(), mini_unet()
    patch = todome.apply(model, reduction)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=tracer)
    outputs = outputs_of(compiled, patch, GRIDS)
    assert tracer.frame_count <= 4
    assert_same_run(outputs, outputs_of(plain, todome.apply(plain, reduction), GRIDS))


class Guided(nn.Module):
    """A user's module around the UNet: both halves of a guided step, and what is made of them."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, sample: Tensor, timestep: Tensor, prompt: Tensor) -> Tensor:
        with_text, without = (self.unet(sample, timestep, one).sample for one in (prompt, prompt * 0))
        return without + 3 * (with_text - without)


def guided_steps(model: Any, patch: todome.Patch, steps: int = 6, grid: tuple[int, int] = (16, 18)) -> list[Tensor]:
    outputs = []
    for step in range(steps):
        patch.at(step, steps)
        with torch.no_grad():
            outputs.append(model(noise(1, 4, *grid), torch.tensor(500), text(1)))
    return outputs


@pytest.mark.parametrize(
    "reduction", [Merge(), pytest.param(Downsample(factor=2, stop=0.5), marks=thorough)], ids=["merge", "window"]
)
def test_a_module_around_the_model_is_one_graph(reduction: Any, tracer: CompileCounterWithBackend):
    model, plain = Guided(mini_unet()), Guided(mini_unet())
    patch = todome.apply(model.unet, reduction)
    compiled = torch.compile(model, fullgraph=True, backend=tracer)
    outputs = guided_steps(compiled, patch)
    assert tracer.frame_count == (2 if reduction.stop < 1 else 1)
    assert_same_run(outputs, guided_steps(plain, todome.apply(plain.unet, reduction)))
    assert not torch.allclose(outputs[0], outputs[1], atol=1e-4)


@thorough
@needs_dynamic_tables
def test_a_module_around_the_model_and_two_sizes_in_turn(tracer: CompileCounterWithBackend):
    model, plain = Guided(mini_unet()), Guided(mini_unet())
    patch, other = todome.apply(model.unet, Downsample(factor=2)), todome.apply(plain.unet, Downsample(factor=2))
    compiled = torch.compile(model, fullgraph=True, backend=tracer)
    for grid in [(16, 18), (12, 20), (16, 18), (12, 20)]:
        assert_same_run(guided_steps(compiled, patch, 2, grid), guided_steps(plain, other, 2, grid))
    assert tracer.frame_count == 2


@torch.no_grad()
def undriven_steps(model: Any) -> list[Tensor]:
    return [model(noise(1, 4, 16, 18), torch.tensor(t), text(1)) for t in (500.0, 499.999, 499.998)]


@pytest.mark.parametrize("phase", ["dither", "random"])
def test_a_module_around_a_model_that_nobody_drives_is_one_graph(phase: Any, tracer: CompileCounterWithBackend):
    """The graph follows the falling timestep itself; one that rises begins a new run."""
    model, plain = Guided(mini_unet()), Guided(mini_unet())
    todome.apply(model.unet, Downsample(factor=2, phase=phase))
    todome.apply(plain.unet, Downsample(factor=2, phase=phase))
    compiled = torch.compile(model, fullgraph=True, backend=tracer)
    for _ in range(2):
        expected, outputs = undriven_steps(plain), undriven_steps(compiled)
        assert_same_run(outputs, expected)
        assert not torch.allclose(outputs[0], outputs[1], atol=1e-3)
    assert tracer.frame_count == 1


def test_a_window_is_refused_in_a_graph_that_nobody_drives():
    model = Guided(mini_unet())
    todome.apply(model.unet, Downsample(factor=2, stop=0.5))
    with pytest.raises(Exception, match=r"\(start, stop\)=\(0.0, 0.5\) cannot be used"):
        undriven_steps(torch.compile(model, fullgraph=True, backend="eager"))


def exported(model: nn.Module) -> Any:
    inputs = unet_inputs()
    arguments = (inputs["sample"], inputs["timestep"], inputs["encoder_hidden_states"])
    return torch.export.export(Tupled(model), arguments).module(), arguments


class Tupled(nn.Module):
    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, sample: Tensor, timestep: Tensor, prompt: Tensor) -> Tensor:
        return self.unet(sample, timestep, prompt, return_dict=False)[0]


@needs_dynamic_tables
@both
def test_an_exported_model_has_the_phase_as_a_constant(reduction: Any):
    model = mini_unet()
    patch = todome.apply(model, reduction)
    patch.at(0, 10)
    program, arguments = exported(model)
    for step in (0, 1, 3, 5):
        patch.at(step, 10)
        expected = run(model, **unet_inputs())
        program.unet.todome_phase.fill_(reduction.phase_index(step))
        with torch.no_grad():
            torch.testing.assert_close(program(*arguments), expected, rtol=1e-4, atol=1e-5)


def test_nothing_is_among_the_tensors_of_the_model():
    model = mini_unet()
    before = list(model.state_dict())
    patch = todome.apply(model, Downsample(factor=2))
    run(model, **unet_inputs())
    assert list(model.named_buffers()) == []
    assert list(model.state_dict()) == before
    patch.remove()
    assert "todome_phase" not in vars(model)


def test_torch_jit_trace_is_refused():
    model = mini_unet()
    todome.apply(model, Downsample(factor=2))
    inputs = unet_inputs()
    arguments = (inputs["sample"], inputs["timestep"], inputs["encoder_hidden_states"])
    with pytest.raises(RuntimeError, match=r"torch\.jit\.trace would record one phase for ever.*Use torch\.compile"):
        traced(Tupled(model), arguments)


def traced(model: nn.Module, arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(model, arguments)


def test_a_window_is_refused_in_a_captured_graph(monkeypatch: pytest.MonkeyPatch):
    """A capture needs a GPU; what is asked while it goes on does not."""
    model = mini_unet()
    patch = todome.apply(model, Downsample(factor=2, stop=0.5))
    patch.at(0, 10)
    monkeypatch.setattr("todome.hooks.root.is_capturing", lambda device: True)
    with pytest.raises(RuntimeError, match=r"\(start, stop\)=\(0\.0, 0\.5\) cannot be used\. .* in a CUDA graph"):
        run(model, **unet_inputs())
