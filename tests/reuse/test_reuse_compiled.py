"""Compiled models: a graph for each kind of step and no more, the bits of eager code, the same again run after run."""

from typing import Any

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from versions import needs_hooks_in_graphs
from zoo import draw, noise, small_unet, text, tiny_pipeline

import todome
from todome import Downsample, Reuse

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), needs_hooks_in_graphs]
SETTINGS = {"guidance_scale": 5.0, "steps": 12}
BETAS: dict[str, Any] = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
HAND = [
    pytest.param(Reuse(every=2, warmup=0.3, stages=1), 2, id="first stage of one half"),
    pytest.param(Reuse(every=2, warmup=0.3, stages=1, guidance=False), 2, id="first stage"),
    pytest.param(Reuse(every=2, warmup=0.3, stages=0), 2, id="output"),
    pytest.param(Reuse(every=2, warmup=0.3, stages=2), 2, id="one half"),
]


def pipeline() -> Any:
    return tiny_pipeline(DPMSolverMultistepScheduler(**BETAS, steps_offset=1), small_unet())


def eager(*levers: Any) -> torch.Tensor:
    pipe = pipeline()
    todome.apply(pipe, *levers)
    return draw(pipe, **SETTINGS)


@pytest.mark.parametrize(("lever", "graphs"), HAND)
def test_each_kind_of_step_is_a_graph(lever: Reuse, graphs: int, tracer: CompileCounterWithBackend):
    pipe = pipeline()
    todome.apply(pipe, lever)
    pipe.unet = torch.compile(pipe.unet, fullgraph=True, backend=tracer)
    first = draw(pipe, **SETTINGS)
    assert tracer.frame_count == graphs
    assert first.equal(draw(pipe, **SETTINGS))
    assert tracer.frame_count == graphs, "nothing is compiled again"
    torch.testing.assert_close(first, eager(lever), rtol=1e-5, atol=1e-5)


def test_a_schedule_that_is_found_has_a_graph_for_each_of_its_kinds(tracer: CompileCounterWithBackend):
    pipe = pipeline()
    patch = todome.apply(pipe, Reuse(keep=45))
    pipe.unet = torch.compile(pipe.unet, fullgraph=True, backend=tracer)
    pictures = [draw(pipe, guidance_scale=5.0, steps=20) for _ in range(2)]
    word = patch._places[0].states[0].report.schedule.word
    assert tracer.frame_count == len(set(word)) > 1
    assert pictures[0].equal(pictures[1])


def test_beside_fewer_keys(tracer: CompileCounterWithBackend):
    levers = Downsample(2), Reuse(every=2, warmup=0.3, stages=1)
    pipe = pipeline()
    todome.apply(pipe, *levers)
    pipe.unet = torch.compile(pipe.unet, fullgraph=True, backend=tracer)
    found = draw(pipe, **SETTINGS)
    assert tracer.frame_count == 2
    torch.testing.assert_close(found, eager(*levers), rtol=1e-5, atol=1e-5)


def test_blocks_that_are_compiled_one_by_one():
    lever = Reuse(every=2, warmup=0.3, stages=1)
    pipe = pipeline()
    todome.apply(pipe, lever)
    for module in pipe.unet.modules():
        if type(module).__name__ == "BasicTransformerBlock":
            module.compile(fullgraph=True, backend="eager")
    torch.testing.assert_close(draw(pipe, **SETTINGS), eager(lever), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_code_that_inductor_makes():
    lever = Reuse(every=2, warmup=0.3, stages=1)
    pipe = pipeline()
    todome.apply(pipe, lever)
    pipe.unet = torch.compile(pipe.unet, fullgraph=True)
    first = draw(pipe, **SETTINGS)
    assert first.equal(draw(pipe, **SETTINGS))
    torch.testing.assert_close(first, eager(lever), rtol=1e-3, atol=1e-3)


class Around(nn.Module):
    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, x: torch.Tensor, timestep: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return self.unet(x, timestep, words, return_dict=False)[0] + 1


@torch.no_grad()
def test_inside_of_a_larger_graph_everything_is_computed(tracer: CompileCounterWithBackend):
    model, scheduler = Around(small_unet()), DPMSolverMultistepScheduler(**BETAS)
    todome.apply(model.unet, Reuse(every=2), scheduler=scheduler)
    compiled, plain = torch.compile(model, fullgraph=True, backend=tracer), Around(small_unet())
    scheduler.set_timesteps(12)
    for timestep in scheduler.timesteps:
        x = noise(1, 4, 8, 8)
        torch.testing.assert_close(compiled(x, timestep, text(1)), plain(x, timestep, text(1)), rtol=1e-5, atol=1e-5)
        scheduler.step(x, timestep, x)
    assert tracer.frame_count == 1
