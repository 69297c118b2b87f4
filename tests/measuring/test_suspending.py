"""`suspended`: every patch off a target for a while, then back exactly, as if nothing had happened in between."""

import contextlib
from typing import Any

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler, PNDMScheduler
from zoo import ddim, draw, mini_unet, run, small_unet, tiny_pipeline, unet_inputs

import todome
from todome import Downsample, Merge
from todome.hooks.modules import clocks_on
from todome.tools.suspending import suspended

TABLES = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
MERGE = pytest.param(Merge(0.5), id="merge", marks=pytest.mark.thorough)
both = pytest.mark.parametrize("reduction", [pytest.param(Downsample(2), id="downsample"), MERGE])


def pndm() -> PNDMScheduler:
    return PNDMScheduler(skip_prk_steps=True, steps_offset=1)


def dpm() -> DPMSolverMultistepScheduler:
    return DPMSolverMultistepScheduler(steps_offset=1)


def nothing(*_: Any) -> None:
    """A hook of somebody else."""


def hook_tables(model: Any) -> dict[str, list[tuple[int, Any]]]:
    """Every hook of every module in its order: bound methods are equal where object and function are the same."""
    modules = model.named_modules()
    return {f"{name}.{table}": list(getattr(module, table).items()) for name, module in modules for table in TABLES}


def surrounded(model: Any, target: Any, reduction: Any) -> todome.Patch:
    """A patch between hooks of somebody else, on every module."""
    for module in model.modules():
        module.register_forward_pre_hook(nothing)
        module.register_forward_hook(nothing, always_call=True)
    patch = todome.apply(target, reduction)
    for module in model.modules():
        module.register_forward_pre_hook(nothing)
        module.register_forward_hook(nothing, always_call=True)
    return patch


@both
def test_the_same_hooks_come_back_in_the_same_places(reduction):
    unet = small_unet()
    surrounded(unet, unet, reduction)
    before = hook_tables(unet)
    with suspended(unet):
        assert not clocks_on(unet)
        assert len(unet._forward_pre_hooks) == len(unet._forward_hooks) == 2
        with todome.apply(unet, Downsample(4)):
            run(unet, **unet_inputs())
    assert hook_tables(unet) == before


def test_hooks_that_came_and_went_in_between_are_respected():
    unet = small_unet()
    handle = unet.register_forward_pre_hook(nothing)
    todome.apply(unet, Downsample(2))
    ours = list(unet._forward_pre_hooks)[1:]
    with suspended(unet):
        handle.remove()
        added = unet.register_forward_pre_hook(nothing)
    assert list(unet._forward_pre_hooks) == [*ours, added.id]
    added.remove()
    assert list(unet._forward_pre_hooks) == ours


@both
def test_dense_while_it_lasts(reduction, pipe):
    dense = draw(pipe)
    todome.apply(pipe, reduction)
    reduced = draw(pipe)
    assert not torch.equal(reduced, dense)
    with suspended(pipe):
        assert torch.equal(draw(pipe), dense)
    assert torch.equal(draw(pipe), reduced)


@both
@pytest.mark.parametrize("kind", [ddim, pndm, dpm])
def test_the_scheduler_is_followed_again_from_where_it_was(reduction, kind):
    """Suspended in the middle of a run, which then goes on as if it had not been."""
    pipe = tiny_pipeline(kind(), unet=small_unet())
    todome.apply(pipe, reduction)
    plain = draw(pipe, steps=5)

    def measure(pipe: Any, step: int, _: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if step == 2:
            before = dict(vars(pipe.scheduler))
            with suspended(pipe):
                assert not {"step", "set_timesteps"} & vars(pipe.scheduler).keys()
                with todome.apply(pipe, Downsample(4)):
                    pipe.scheduler.set_timesteps(7)
                    pipe.scheduler.step(tensors["latents"], pipe.scheduler.timesteps[0], tensors["latents"])
            assert list(vars(pipe.scheduler)) == list(before)
            assert vars(pipe.scheduler)["step"] is before["step"]
        return tensors

    assert torch.equal(draw(pipe, steps=5, callback_on_step_end=measure), plain)


def test_another_wrapper_of_the_scheduler_stays():
    scheduler, calls = ddim(), []
    own = scheduler.step
    scheduler.step = lambda *args, **kwargs: calls.append(1) or own(*args, **kwargs)
    mine = scheduler.step
    pipe = tiny_pipeline(scheduler, unet=small_unet())
    patch = todome.apply(pipe, Downsample(2))
    with suspended(pipe):
        assert pipe.scheduler.step is mine
        draw(pipe, steps=3)
    assert len(calls) == 3
    patch.remove()
    assert pipe.scheduler.step is mine


@both
def test_the_handle_stays_valid(reduction, pipe):
    dense, patch = draw(pipe), todome.apply(pipe, reduction)
    draw(pipe)
    text = str(patch)
    with suspended(pipe):
        draw(pipe, grid=(12, 12))
    assert str(patch) == text
    patch.remove()
    assert not clocks_on(pipe.unet)
    assert not {"step", "set_timesteps"} & vars(pipe.scheduler).keys()
    assert torch.equal(draw(pipe), dense)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_put_back_after_an_error(error, pipe):
    patch = todome.apply(pipe, Downsample(2))
    before, step, reduced = hook_tables(pipe.unet), pipe.scheduler.step, draw(pipe)
    with contextlib.suppress(error), suspended(pipe), todome.apply(pipe, Merge(0.5)):
        pipe.scheduler.set_timesteps(3)
        raise error
    assert hook_tables(pipe.unet) == before
    assert pipe.scheduler.step is step
    assert torch.equal(draw(pipe), reduced)
    patch.remove()
    assert not clocks_on(pipe.unet)


@both
def test_a_bare_model_goes_on_dithering_where_it_was(reduction):
    unet, other = small_unet(), small_unet()
    for model in (unet, other):
        todome.apply(model, reduction)
        run(model, **unet_inputs())
    with suspended(unet):
        run(unet, **unet_inputs())
    assert torch.equal(run(unet, **unet_inputs()), run(other, **unet_inputs()))


def test_a_target_that_is_not_patched_is_left_alone(pipe):
    before, drawn = hook_tables(pipe.unet), draw(pipe)
    state = dict(vars(pipe.scheduler))
    with suspended(pipe), suspended(pipe.unet):
        assert torch.equal(draw(pipe, steps=3), draw(pipe, steps=3))
    assert hook_tables(pipe.unet) == before
    assert pipe.scheduler.num_inference_steps == state["num_inference_steps"] == 10
    assert torch.equal(draw(pipe), drawn)


@pytest.mark.thorough
def test_a_compiled_model_is_dense_while_it_lasts():
    """Graphs do not notice hooks that come and go: they are made anew."""
    unet = mini_unet()
    dense = run(unet, **unet_inputs())
    unet.register_forward_pre_hook(nothing)
    patch = todome.apply(unet, Downsample(2))
    compiled = torch.compile(unet, backend="eager")

    def reduced() -> torch.Tensor:
        patch.at(0, 10)
        return run(compiled, **unet_inputs())

    before = reduced()
    assert not torch.allclose(before, dense, atol=1e-4)
    with suspended(compiled):
        torch.testing.assert_close(run(compiled, **unet_inputs()), dense)
    torch.testing.assert_close(reduced(), before)
