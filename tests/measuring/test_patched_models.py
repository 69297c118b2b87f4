"""A model that is patched already is measured against its dense self, and its patch is left as it was.

So every patch comes off a target for a while (`suspended`), and back exactly, as if nothing had happened in between.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import PNDMScheduler
from zoo import ddim, draw, mini_unet, run, small_unet, talking, tiny_pipeline, unet_inputs

import todome
from todome import Downsample, Merge
from todome.hooks.attaching import patches_on
from todome.tools.demo import compare
from todome.tools.generate import Settings, make_picture
from todome.tools.suspending import suspended
from todome.tools.timing import Timing

TABLES = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
MERGE = pytest.param(Merge(0.5), id="merge", marks=pytest.mark.thorough)
both = pytest.mark.parametrize("reduction", [pytest.param(Downsample(2), id="downsample"), MERGE])
MOMENT = Timing(seconds=0, rounds=1)
SETTINGS = Settings(prompt="a rose", size=(32, 32), steps=2)


def pndm() -> PNDMScheduler:
    return PNDMScheduler(skip_prk_steps=True, steps_offset=1)


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


def evaluate(pipe: Any, folder: Path) -> Any:
    options = {"sizes": ((32, 32),), "pictures": 1, "steps": 2}
    return todome.evaluate(pipe, ["a rose"], ["todome:2", "tome:0.5"], out=folder / "run", **options)


MEASUREMENTS: dict[str, Callable[[Any, Path], Any]] = {
    "evaluate": evaluate,
    "bench": lambda pipe, _: todome.bench(pipe, [(32, 32)], ["todome:2", "tomesd:0.5"], rounds=1, seconds=0),
    "explain": lambda pipe, _: todome.explain(pipe, 32, 32, Downsample(2), timing=MOMENT),
    "make_picture": lambda pipe, _: make_picture(SETTINGS, pipe),
    "make_picture, reduced": lambda pipe, _: make_picture(
        Settings(**{**vars(SETTINGS), "reduction": Merge(0.25), "scheduler": "euler"}), pipe
    ),
    "compare": lambda pipe, _: compare(pipe, SETTINGS),
}
every = pytest.mark.parametrize("name", MEASUREMENTS)


def patched_pipeline(reduction: Any) -> tuple[Any, todome.Patch]:
    pipe = talking(tiny_pipeline(unet=small_unet()))
    return pipe, surrounded(pipe.unet, pipe, reduction)


def everything(pipe: Any) -> tuple[Any, ...]:
    """What a measurement must not change: every hook, the scheduler, whatever draws from the global generator."""
    return hook_tables(pipe.unet), list(vars(pipe.scheduler)), pipe.scheduler.step, torch.get_rng_state().tolist()


@both
@every
def test_the_patch_is_left_as_it_was(reduction, name, tmp_path):
    pipe, patch = patched_pipeline(reduction)
    drawn = draw(pipe, steps=4)
    before, text = everything(pipe), str(patch)
    MEASUREMENTS[name](pipe, tmp_path)
    assert everything(pipe) == before
    assert str(patch) == text
    assert torch.equal(draw(pipe, steps=4), drawn)
    patch.remove()
    assert not patches_on(pipe.unet)
    assert not {"step", "set_timesteps"} & vars(pipe.scheduler).keys()


@both
@every
def test_the_patch_is_left_as_it_was_when_it_fails(reduction, name, tmp_path):
    """Interrupted in the second step of whatever is being drawn or timed."""
    pipe, patch = patched_pipeline(reduction)
    drawn, calls, own = draw(pipe, steps=4), [], pipe.unet.conv_in.forward

    def interrupt(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return own(x)

    before, text = everything(pipe), str(patch)
    pipe.unet.conv_in.forward = interrupt
    with pytest.raises(KeyboardInterrupt):
        MEASUREMENTS[name](pipe, tmp_path)
    del pipe.unet.conv_in.forward
    assert everything(pipe)[:3] == before[:3]
    assert str(patch) == text
    assert torch.equal(draw(pipe, steps=4), drawn)
    patch.remove()
    assert not patches_on(pipe.unet)


def test_dense_is_dense_where_a_pipeline_is_patched(tmp_path):
    pipe = talking(tiny_pipeline(unet=small_unet()))
    dense, reduced = (make_picture(Settings(**{**vars(SETTINGS), "reduction": r}), pipe) for r in (None, Merge(0.5)))
    plain = evaluate(pipe, tmp_path / "plain")
    todome.apply(pipe, Downsample(2))
    again, patched = make_picture(SETTINGS, pipe), evaluate(pipe, tmp_path / "patched")
    assert again.picture.tobytes() == dense.picture.tobytes() != reduced.picture.tobytes()
    assert again.reduced == "dense"
    assert [row.closeness for row in patched.rows] == [row.closeness for row in plain.rows]
    assert max(patched.rows[1].closeness.psnr) < 100


def test_the_times_of_dense_are_those_without_the_patch():
    """What is timed as dense has no hooks of todome, and what is timed as reduced has those of its own method."""
    unet, timed = mini_unet(), []
    todome.apply(unet, Downsample(4))
    mine = patches_on(unet)
    unet.register_forward_pre_hook(lambda *_: timed.append([one.lever for p in patches_on(unet) for one in p.levers]))
    todome.bench(unet, [(64, 64)], ["todome:2"], rounds=1, seconds=0)
    assert [one for one, _ in itertools.groupby(timed)] == [[], [Downsample(2)], []]
    assert patches_on(unet) == mine


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
@pytest.mark.parametrize("kind", [ddim, pndm])
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
def test_a_bare_model_goes_on_dithering_where_it_was(reduction):
    unet, other = small_unet(), small_unet()
    for model in (unet, other):
        todome.apply(model, reduction)
        run(model, **unet_inputs())
    with suspended(unet):
        run(unet, **unet_inputs())
    assert torch.equal(run(unet, **unet_inputs()), run(other, **unet_inputs()))


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
