"""Guarantee 9: threads that share a model draw what they draw one after the other, bit for bit."""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from promises import among, both
from torch import Tensor, nn
from versions import needs_hooks_in_graphs
from zoo import (
    draw,
    mini_unet,
    noise,
    plan_for_all,
    reduced_everywhere,
    run,
    small_unet,
    text,
    tiny_pipeline,
    unet_inputs,
)

import todome
from todome import Downsample, Merge
from todome.hosts import find_layers

REDUCTIONS = [
    pytest.param(Downsample(factor=2), marks=pytest.mark.thorough),
    Downsample(factor=2, start=0.2, stop=0.6),
    Merge(),
    pytest.param(Merge(stop=0.5), marks=pytest.mark.thorough),
]
over_reductions = pytest.mark.parametrize("reduction", REDUCTIONS, ids=repr)
SIZES = [(8, 8), (8, 12), (12, 8)]


class Rendezvous:
    """Has threads wait for each other in the middle of the model, so that their calls surely overlap."""

    def __init__(self, parties: int) -> None:
        self.parties, self.waiting, self.meetings = parties, 0, 0
        self.changed = threading.Condition()

    def wait(self, *_: Any) -> None:
        with self.changed:
            meeting, self.waiting = self.meetings, self.waiting + 1
            self.go_on_if_complete()
            assert self.changed.wait_for(lambda: self.meetings > meeting, timeout=60)

    def leave(self) -> None:
        """By a thread that is done: the others no longer wait for it."""
        with self.changed:
            self.parties -= 1
            self.go_on_if_complete()

    def go_on_if_complete(self) -> None:
        if self.waiting >= self.parties:
            self.waiting, self.meetings = 0, self.meetings + 1
            self.changed.notify_all()


def meet_in(model: nn.Module, jobs: list[Callable[[], Tensor]]) -> list[Callable[[], Tensor]]:
    """The jobs, which now meet at every attention, just before it: after a grid was read and tokens were matched."""
    rendezvous = Rendezvous(len(jobs))
    for name, module in model.named_modules():
        if name.endswith(("attn1", "norm1")):
            module.register_forward_pre_hook(rendezvous.wait)

    def with_others(job: Callable[[], Tensor]) -> Tensor:
        try:
            return job()
        finally:
            rendezvous.leave()

    return [partial(with_others, job) for job in jobs]


def together(jobs: list[Callable[[], Tensor]]) -> list[Tensor]:
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def request(pipeline: Any, scheduler: Any, **options: Any) -> Callable[[], Tensor]:
    """A picture by a pipeline of the request's own around the same model."""
    own = copy.copy(pipeline)
    own.scheduler = scheduler
    return lambda: draw(own, **options)


def assert_same(jobs: list[Callable[[], Tensor]], model: nn.Module) -> None:
    alone = [job() for job in jobs]
    for one, other in zip(together(meet_in(model, jobs)), alone, strict=True):
        assert torch.equal(one, other)
    assert len({picture.sum().item() for picture in alone}) == len(alone)


@over_reductions
def test_requests_with_copies_of_the_scheduler(reduction: Any):
    pipeline = tiny_pipeline()
    todome.apply(pipeline, reduction)
    options = [{"grid": grid, "steps": steps} for grid, steps in zip(SIZES, (4, 6, 5), strict=True)]
    assert_same([request(pipeline, copy.deepcopy(pipeline.scheduler), **one) for one in options], pipeline.unet)


@pytest.mark.filterwarnings("ignore:This plan was measured on pictures of another size")
def test_requests_on_both_sides_of_the_switch_of_a_plan():
    pipeline = tiny_pipeline()
    todome.apply(pipeline, plan_for_all(find_layers(pipeline.unet), later=1))
    options = [{"grid": grid, "steps": steps} for grid, steps in zip(SIZES, (4, 6, 5), strict=True)]
    assert_same([request(pipeline, copy.deepcopy(pipeline.scheduler), **one) for one in options], pipeline.unet)


@over_reductions
def test_requests_with_pipelines_of_their_own(reduction: Any):
    first = tiny_pipeline()
    second = tiny_pipeline(unet=first.unet)
    todome.apply(first, reduction)
    todome.apply(second, reduction)
    assert_same([lambda: draw(first, steps=4), lambda: draw(second, steps=6, grid=(8, 12))], first.unet)


@pytest.mark.parametrize("reduction", [Downsample(factor=2), Merge()], ids=repr)
def test_pipelines_that_nobody_follows(reduction: Any):
    first = tiny_pipeline()
    second = tiny_pipeline(unet=first.unet)
    todome.apply(first.unet, reduction)
    assert_same([lambda: draw(first, steps=4), lambda: draw(second, steps=6, grid=(8, 12))], first.unet)


def in_step(patch: todome.Patch, step: int, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A call in a step that the host says."""

    def job() -> Tensor:
        patch.at(step, 10)
        return call()

    return job


@over_reductions
def test_hosts_that_say_where_they_are(reduction: Any):
    model = small_unet()
    patch = todome.apply(model, reduction)
    # Two of them have the same number of tokens on different grids.
    calls = [(1, (16, 18)), (3, (18, 16)), (4, (12, 20)), (9, (14, 16))]
    jobs = [in_step(patch, step, partial(run, model, **unet_inputs(2, grid))) for step, grid in calls]
    assert_same(jobs, model)


@both
@among("ldm1", "sgm", "svd")
def test_other_hosts(host: Any, kind: type):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    assert_same([in_step(patch, step, partial(host.run, target)) for step in (0, 1)], target)


@needs_hooks_in_graphs
@pytest.mark.usefixtures("fresh_dynamo")
def test_a_compiled_model_is_called_by_one_thread_at_a_time_and_an_interrupted_call_holds_up_nobody():
    model = mini_unet()
    patch = todome.apply(model, Downsample(factor=2))
    compiled = torch.compile(model, fullgraph=True, backend="eager")

    def job(steps: int) -> Callable[[], Tensor]:
        def call() -> Tensor:
            outputs = []
            for step in range(steps):
                patch.at(step, steps)
                outputs.append(run(compiled, **unet_inputs(2, (32, 36))))
            return torch.stack(outputs)

        return call

    jobs = [job(6), job(7)]  # of one graph
    alone = [one() for one in jobs]  # and the graph is made
    with torch.no_grad(), pytest.raises(RuntimeError):
        compiled(noise(2, 4, 32, 36), torch.tensor(5), text(2)[..., :3])
    for _ in range(3):
        for one, other in zip(together(jobs), alone, strict=True):
            assert torch.equal(one, other)


def test_data_parallel_is_refused():
    model = small_unet()
    with pytest.raises(TypeError, match=r"target='DataParallel' cannot be used\. Allowed: a model without"):
        todome.apply(nn.DataParallel(model))
    todome.apply(model, Downsample(factor=2))
    (replica,) = [model._replicate_for_data_parallel()]
    with pytest.raises(RuntimeError, match=r"DataParallel computes a model in threads.*Use DistributedDataParallel"):
        replica(**unet_inputs())
