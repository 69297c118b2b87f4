"""A model that is patched already: it is measured against its dense self, and its patch is left as it was."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_suspending import hook_tables, surrounded
from zoo import draw, mini_unet, run, small_unet, talking, tiny_pipeline, unet_inputs

import todome
from todome import Downsample, Merge
from todome.hooks.modules import clocks_on
from todome.tools.demo import compare
from todome.tools.generate import Settings, make_picture
from todome.tools.timing import Timing

MERGE = pytest.param(Merge(0.5), id="merge", marks=pytest.mark.thorough)
both = pytest.mark.parametrize("reduction", [pytest.param(Downsample(2), id="downsample"), MERGE])
MOMENT = Timing(seconds=0, rounds=1)
SETTINGS = Settings(prompt="a rose", size=(32, 32), steps=2)


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
    assert not clocks_on(pipe.unet)
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
    assert not clocks_on(pipe.unet)


def test_a_picture_asked_for_dense_is_dense():
    pipe = talking(tiny_pipeline(unet=small_unet()))
    dense, reduced = (make_picture(Settings(**{**vars(SETTINGS), "reduction": r}), pipe) for r in (None, Merge(0.5)))
    todome.apply(pipe, Downsample(2))
    again = make_picture(SETTINGS, pipe)
    assert again.picture.tobytes() == dense.picture.tobytes() != reduced.picture.tobytes()
    assert again.reduced == "dense"


def test_dense_is_dense_when_a_patched_pipeline_is_evaluated(tmp_path):
    pipe = talking(tiny_pipeline(unet=small_unet()))
    plain = evaluate(pipe, tmp_path / "plain")
    todome.apply(pipe, Downsample(2))
    patched = evaluate(pipe, tmp_path / "patched")
    assert [row.closeness for row in patched.rows] == [row.closeness for row in plain.rows]
    assert max(patched.rows[1].closeness.psnr) < 100


@both
@pytest.mark.parametrize(
    "measure",
    [
        lambda unet: todome.bench(unet, [(64, 64)], ["todome:2", "tomesd:0.5"], rounds=1, seconds=0),
        lambda unet: todome.explain(unet, 64, 64, Downsample(2), timing=MOMENT),
    ],
    ids=["bench", "explain"],
)
def test_a_bare_model_goes_on_where_it_was(reduction, measure):
    unet, other = mini_unet(), mini_unet()
    patch = surrounded(unet, unet, reduction)
    todome.apply(other, reduction)
    assert torch.equal(run(unet, **unet_inputs()), run(other, **unet_inputs()))
    before, text = hook_tables(unet), str(patch)
    measure(unet)
    assert hook_tables(unet) == before
    assert str(patch) == text
    assert torch.equal(run(unet, **unet_inputs()), run(other, **unet_inputs()))
    patch.remove()
    assert not clocks_on(unet)


def test_the_times_of_dense_are_those_without_the_patch():
    """What is timed as dense has no hooks of todome, and what is timed as reduced has those of its own method."""
    unet, timed = mini_unet(), []
    todome.apply(unet, Downsample(4))
    mine = clocks_on(unet)
    unet.register_forward_pre_hook(lambda *_: timed.append([clock.reduction for clock in clocks_on(unet)]))
    todome.bench(unet, [(64, 64)], ["todome:2"], rounds=1, seconds=0)
    assert [one for one, _ in itertools.groupby(timed)] == [[], [Downsample(2)], []]
    assert clocks_on(unet) == mine
