"""Every scheduler of the installed diffusers, in a pipeline and given by hand."""

import inspect
import warnings
from typing import Any

import diffusers
import pytest
import torch
from sampling import call_diffusers, unwatched
from zoo import one_level_unet, recording, tiny_pipeline

import todome
from todome import Downsample


def scheduler_classes() -> list[Any]:
    found = []
    for name in dir(diffusers):
        if "Scheduler" in name and not name.startswith(("Flax", "Karras")):
            cls = getattr(diffusers, name)
            if inspect.isclass(cls) and hasattr(cls, "from_config") and cls.__name__ not in {"SchedulerMixin"}:
                found.append(cls)
    return found


CLASSES = scheduler_classes()
ARGUMENTS: dict[str, dict[str, Any]] = {
    "AmusedScheduler": {"mask_token_id": 1},
    "RFD4ProteinaScheduler": {"schedule_mode": "power", "noise_mode": "tan", "tsr_k": 1.0, "tsr_sigma": 1.0},
    "VQDiffusionScheduler": {"num_vec_classes": 4},
}


def build(cls: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return cls(**ARGUMENTS.get(cls.__name__, {}))
        except ImportError as error:
            pytest.skip(str(error).splitlines()[0])


def test_there_are_schedulers_of_every_family():
    names = {cls.__name__ for cls in CLASSES}
    assert len(names) > 35
    assert {"FlowMatchEulerDiscreteScheduler", "DDIMScheduler", "DPMSolverSDEScheduler", "EDMEulerScheduler"} <= names


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_apply_and_remove_with_every_scheduler_of_a_pipeline(cls):
    pipeline = tiny_pipeline()
    pipeline.scheduler = scheduler = build(cls)
    before = dict(vars(scheduler))
    patch = todome.apply(pipeline, Downsample(2))
    with torch.no_grad():
        call_diffusers(pipeline.unet)
    patch.remove()
    assert vars(scheduler).keys() == before.keys()
    assert unwatched(scheduler)


def follows(cls: Any) -> bool:
    return callable(getattr(cls, "set_timesteps", None)) and callable(getattr(cls, "step", None))


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [cls for cls in CLASSES if follows(cls)], ids=lambda cls: cls.__name__)
def test_every_scheduler_given_by_hand_sets_a_run_up(cls):
    unet, scheduler = one_level_unet(), build(cls)
    patch = todome.apply(unet, Downsample(2, stop=0.5), scheduler=scheduler)
    if not can_be_set_up(scheduler):
        pytest.skip("wants more than a number of steps")
    with torch.no_grad(), recording(unet) as record:
        call_diffusers(unet)  # which would be refused outside of a run
    assert record.reduced == [True]
    patch.remove()
    assert unwatched(scheduler)


def can_be_set_up(scheduler: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scheduler.set_timesteps(4)
        except (AttributeError, KeyError, TypeError, ValueError):
            return False
    return True


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if not follows(cls)], ids=lambda cls: cls.__name__)
def test_what_cannot_be_followed_is_refused_by_a_sentence(cls):
    with pytest.raises(TypeError, match=r"scheduler=.* cannot be used\. Allowed: an object with set_timesteps and"):
        todome.apply(one_level_unet(), Downsample(2), scheduler=build(cls))
