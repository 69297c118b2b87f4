"""When everything is computed, what stays afterwards, and patches that come and go in the middle of a run."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from diffusers import DDIMInverseScheduler
from running import HAND, STEPS, computed, dense, followed, guided, last_of, steps_of
from sampling import SCHEDULERS
from torch import Tensor
from zoo import SIDE, draw, noise, small_unet, text, tiny_pipeline

import todome
from todome import Downsample, Reuse
from todome.hooks.compiling import TORCH

OUTPUT = Reuse(every=2, warmup=0.3, stages=0)


def pipeline(name: str = "DDIM") -> Any:
    return tiny_pipeline(SCHEDULERS[name](), small_unet())


def with_gradients(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
    return unet(torch.cat([sample] * 2), timestep, text(2)).sample.detach()[1:]


def by_forward(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
    with torch.no_grad():
        return unet.forward(torch.cat([sample] * 2), timestep, text(2)).sample[1:]


def in_vmap(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
    words = text(2)
    with torch.no_grad():
        return torch.func.vmap(lambda x: unet(x, timestep, words).sample)(torch.cat([sample] * 2)[None])[0][1:]


class Own(Tensor):
    """A tensor of a user's class."""


def of_a_class(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
    with torch.no_grad():
        return unet(torch.cat([sample] * 2).as_subclass(Own), timestep, text(2)).sample[1:].as_subclass(Tensor)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # of torch.vmap
@pytest.mark.parametrize("lever", [HAND, OUTPUT], ids=str)
@pytest.mark.parametrize(
    "predict",
    [
        with_gradients,
        by_forward,
        of_a_class,
        pytest.param(in_vmap, marks=pytest.mark.skipif(TORCH < (2, 2), reason="its attention cannot be mapped")),
    ],
)
def test_calls_in_which_everything_is_computed(predict: Any, lever: Reuse):
    unet, (scheduler,) = followed(lever=lever)
    with computed(unet) as word:
        found = last_of(steps_of(unet, scheduler, predict=predict))
    assert word == ["F"] * STEPS
    assert found.equal(dense(unet, scheduler, predict=predict))


@pytest.mark.parametrize("lever", [HAND, OUTPUT], ids=str)
def test_a_model_without_values(lever: Reuse):
    unet, (scheduler,) = followed(lever=lever)
    unet.to("meta")
    scheduler.set_timesteps(STEPS)
    with torch.no_grad(), computed(unet) as word:
        for timestep in scheduler.timesteps:
            assert unet(torch.empty(2, 4, SIDE, SIDE, device="meta"), timestep, text(2).to("meta")).sample.is_meta
    assert word == ["F"] * STEPS


@pytest.mark.parametrize("steps", [1, 2, 4, 7])
@pytest.mark.parametrize("lever", [HAND, OUTPUT, Reuse(keep=40)], ids=str)
def test_few_steps(lever: Reuse, steps: int):
    pipe = pipeline("DPM++ 2M")
    full = draw(pipe, steps=steps)
    todome.apply(pipe, lever)
    assert draw(pipe, steps=steps).equal(full)


def test_noise_levels_that_rise():
    unet, scheduler = small_unet(), DDIMInverseScheduler()
    todome.apply(unet, HAND, scheduler=scheduler)
    with computed(unet) as word:
        found = last_of(steps_of(unet, scheduler))
    assert word == ["F"] * STEPS
    assert found.equal(dense(unet, scheduler))


def test_a_schedule_that_a_user_exchanges():
    """Timesteps that are put in after set_timesteps, more of them and fewer, before a run and in the middle of one."""
    unet, (scheduler,) = followed()
    for steps in (20, 6):
        scheduler.set_timesteps(STEPS)
        last_of(steps_of(unet, scheduler, set_up=False))
        scheduler.timesteps = torch.linspace(900, 1, steps).round().long()
        last_of(steps_of(unet, scheduler, set_up=False))
        run = steps_of(unet, scheduler)
        for _ in range(5):
            next(run)
        scheduler.timesteps = torch.linspace(500, 1, steps).round().long()
        last_of(steps_of(unet, scheduler, set_up=False))


def test_gradients_in_the_middle_of_a_run_are_of_the_dense_model():
    unet, (scheduler,) = followed()
    alone = last_of(steps_of(unet, scheduler))

    def steered(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
        steering = sample.clone().requires_grad_()
        unet(torch.cat([steering] * 2), timestep, text(2)).sample.sum().backward()
        assert steering.grad is not None
        return guided(unet, sample, timestep)

    assert last_of(steps_of(unet, scheduler, predict=steered)).equal(alone)


# What stays


def tensors_of(scheduler: Any) -> list[Tensor]:
    """That a run keeps."""
    kept = [one for one in scheduler.step.watch.run.kept.values() if one is not None]
    lines = [line for one in kept for caller in one.callers.values() for line in caller.lines.values()]
    return [line.value for line in lines] + [line.before[1] for line in lines if line.before]


@pytest.mark.parametrize("lever", [HAND, OUTPUT], ids=str)
@pytest.mark.parametrize("last", ["made", "not made", "broken off"])
def test_nothing_is_kept_after_a_run(lever: Reuse, last: str):
    unet, (scheduler,) = followed(lever=lever)
    run = steps_of(unet, scheduler)
    ghosts = set()
    for _ in range(7 if last == "broken off" else STEPS - 1):
        next(run)
        ghosts |= {weakref.ref(tensor) for tensor in tensors_of(scheduler)}
    if last == "made":
        next(run)
    elif last == "not made":
        guided(unet, noise(1, 4, SIDE, SIDE), scheduler.timesteps[-1])
    else:
        scheduler.set_timesteps(STEPS)
        guided(unet, noise(1, 4, SIDE, SIDE), scheduler.timesteps[0])
    assert len(ghosts) > 5
    gc.collect()
    assert not [ghost for ghost in ghosts if ghost() is not None]


def test_no_more_is_kept_than_is_used():
    """Of deep features one half, and not the memory of the other."""
    unet, (scheduler,) = followed()
    run = steps_of(unet, scheduler)
    for _ in range(6):
        next(run)
    (kept,) = scheduler.step.watch.run.kept.values()
    (caller,) = kept.callers.values()
    deep = caller.lines[1].value
    assert len(deep) == 1
    assert deep.untyped_storage().nbytes() == deep.numel() * deep.element_size()
    list(run)


def test_of_a_caller_that_is_gone_nothing_is_kept():
    unet, (scheduler,) = followed()

    def at_first(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
        if timestep > 500:
            return guided(unet, sample, timestep)
        with torch.no_grad():
            return unet(sample, timestep, text(1)).sample

    run = steps_of(unet, scheduler, predict=at_first)
    ghosts = set()
    for timestep in scheduler.timesteps[:STEPS]:
        next(run)
        ghosts |= {weakref.ref(tensor) for tensor in tensors_of(scheduler) if timestep > 500}
    gc.collect()
    assert len(ghosts) > 10
    assert not [ghost for ghost in ghosts if ghost() is not None]


def test_a_run_ends_with_its_scheduler():
    """Also where somebody has the latents that the model was called with."""
    unet, (scheduler,) = followed()
    held = []

    def held_by_others(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
        held.append(torch.cat([sample] * 2))
        with torch.no_grad():
            return unet(held[-1], timestep, text(2)).sample[1:]

    run = steps_of(unet, scheduler, predict=held_by_others)
    for _ in range(6):
        next(run)
    ghosts = [weakref.ref(tensor) for tensor in tensors_of(scheduler)]
    del scheduler, run
    gc.collect()
    assert ghosts
    assert not [ghost for ghost in ghosts if ghost() is not None]


@pytest.mark.parametrize("lever", [HAND, OUTPUT], ids=str)
def test_what_a_user_does_with_an_output_changes_nothing(lever: Reuse):
    """Such as to scale it in place."""
    unet, (scheduler,) = followed(lever=lever)
    alone = last_of(steps_of(unet, scheduler))

    def careless(unet: Any, sample: Tensor, timestep: Any) -> Tensor:
        latents = torch.cat([sample] * 2)
        with torch.no_grad():
            output = unet(latents, timestep, text(2)).sample
        unconditional, conditional = output.clone().chunk(2)
        output.zero_()
        latents.zero_()
        return unconditional + 5 * (conditional - unconditional)

    assert last_of(steps_of(unet, scheduler, predict=careless)).equal(alone)


def test_blocks_that_change_what_they_are_given():
    """FreeU does, in place: what is kept and what is predicted must not be changed twice."""
    unet = small_unet(block_out_channels=(8, 16, 16), **three_levels())
    scheduler = SCHEDULERS["DDIM"]()
    todome.apply(unet, Reuse(every=2, warmup=0.3, stages=2), scheduler=scheduler)
    plain = last_of(steps_of(unet, scheduler))
    unet.enable_freeu(s1=1.0, s2=1.0, b1=1.0, b2=1.0)
    torch.testing.assert_close(last_of(steps_of(unet, scheduler)), plain, rtol=1e-4, atol=1e-4)
    unet.enable_freeu(s1=1.0, s2=1.0, b1=1.0, b2=3.0)
    run = steps_of(unet, scheduler)
    for _ in range(5):
        next(run)
    (kept,) = scheduler.step.watch.run.kept.values()
    (caller,) = kept.callers.values()
    given: list[Tensor] = []
    unet.up_blocks[1].register_forward_pre_hook(
        lambda module, args, kwargs: given.append(kwargs["hidden_states"].clone()), with_kwargs=True
    )
    next(run)
    assert given[0][1:].equal(caller.lines[2].value)
    list(run)


def three_levels() -> dict[str, Any]:
    down, up = ("CrossAttnDownBlock2D",) * 3, ("CrossAttnUpBlock2D",) * 3
    return {"down_block_types": down, "up_block_types": up}


# Patches that come and go


@pytest.mark.parametrize("lever", [HAND, OUTPUT, Reuse(keep=40)], ids=str)
def test_every_step_is_full_where_that_is_asked(lever: Reuse):
    pipe = pipeline("DPM++ 2M")
    full = draw(pipe, steps=STEPS)
    for every in (Reuse(every=1), Reuse(every=1, stages=0), Reuse(every=1, warmup=0.0, guidance=False)):
        with todome.apply(pipe, lever), todome.apply(pipe, every):
            assert draw(pipe, steps=STEPS).equal(full)
    assert draw(pipe, steps=STEPS).equal(full)


def test_a_patch_inside_of_another_in_the_middle_of_a_run():
    """What the outer one has kept is too old afterwards."""
    unet, (scheduler,) = followed()
    run = steps_of(unet, scheduler)
    with computed(unet) as word:
        for _ in range(5):
            next(run)
        with todome.apply(unet, Downsample(2)):
            for _ in range(2):
                next(run)
        list(run)
    assert "".join(word) == "FFFFs" + "FF" + "FFFsF"


@pytest.mark.parametrize(
    "change", [todome.remove, lambda pipe: todome.apply(pipe, HAND), lambda pipe: todome.apply(pipe, Downsample(2))]
)
@pytest.mark.parametrize("inside", ["", "conv_in", "conv_out"])
def test_a_patch_goes_between_the_calls_that_another_thread_makes(change: Any, inside: str):
    """A call is partial as a whole or not at all: its stages are not put back in the middle of it."""
    pipe = pipeline()
    full = draw(pipe, steps=STEPS)
    reached, go_on = threading.Event(), threading.Event()

    def pause(module: Any, args: Any) -> None:
        if len(args[0]) == 1 and not reached.is_set():
            reached.set()
            go_on.wait(30)

    hook = pipe.unet.get_submodule(inside).register_forward_pre_hook(pause)  # before any hook of todome's
    todome.apply(pipe, HAND)
    with ThreadPoolExecutor(2) as pool:
        drawing = pool.submit(draw, pipe, steps=STEPS)
        assert reached.wait(30)
        changing = pool.submit(change, pipe)
        time.sleep(0.1)
        assert not changing.done()
        go_on.set()
        changing.result(60)
        assert drawing.result(60).shape == full.shape
    hook.remove()
    todome.remove(pipe)
    assert draw(pipe, steps=STEPS).equal(full)


def test_patches_come_and_go_while_others_draw():
    pipe = pipeline()
    full = draw(pipe, steps=STEPS)
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            todome.apply(pipe, HAND)
            todome.apply(pipe, Downsample(2))
            todome.remove(pipe)

    with ThreadPoolExecutor(2) as pool:
        changing = pool.submit(come_and_go)
        try:
            for _ in range(5):
                assert torch.isfinite(draw(pipe, steps=STEPS)).all()
        finally:
            stop.set()
        changing.result(60)
    assert type(pipe.unet) is type(small_unet())
    assert draw(pipe, steps=STEPS).equal(full)
