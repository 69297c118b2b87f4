"""Noise levels of runs: what each scheduler's model is really given, and what follows from it for predictions."""

import inspect
import math
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import (
    CogVideoXDDIMScheduler,
    CogVideoXDPMScheduler,
    DDIMScheduler,
    DDPMScheduler,
    DEISMultistepScheduler,
    DPMSolverMultistepScheduler,
    DPMSolverSinglestepScheduler,
    EDMEulerScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    HeunDiscreteScheduler,
    KDPM2DiscreteScheduler,
    LMSDiscreteScheduler,
    SASolverScheduler,
    UniPCMultistepScheduler,
)
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st
from sampling import KNOWN_WARNINGS, SCHEDULERS, every_scheduler
from test_all_schedulers import CLASSES, build
from torch import Tensor
from versions import needs_spacings

from todome.steps.noise import LARGEST, SMALLEST, Noise, noise_of

pytestmark = [*KNOWN_WARNINGS, needs_spacings, pytest.mark.filterwarnings("ignore:.*(lower_order_final|deprecat)")]
BETAS: dict[str, Any] = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
MASKS = {"Amused", "BlockRefinement", "DiscreteDDIM", "EntropyBound", "RFD4Proteina", "VQDiffusion"}  # and tokens
TIMES = {"DDPMWuerstchen", "IPNDM", "SCM", "ScoreSdeVe", "ScoreSdeVp", "ConsistencyDecoder"}  # of their own kind


def set_up(scheduler: Any, steps: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler.set_timesteps(steps, **options)
    return scheduler


def told(scheduler: Any) -> Noise:
    noise = noise_of(scheduler)
    assert noise is not None
    return noise


def seen(scheduler: Any) -> list[float]:
    """The noise over the signal in what the model is given at each call, as the scheduler itself mixes it."""
    if hasattr(scheduler, "sigmas") and scales(scheduler):
        return scaled_down(scheduler)
    return [added(scheduler, place) for place in range(len(scheduler.timesteps))]


def zeros() -> Tensor:
    return torch.zeros(1, 1, 1, 1, dtype=torch.double)


def ones() -> Tensor:
    return torch.ones(1, 1, 1, 1, dtype=torch.double)


def scales(scheduler: Any) -> bool:
    source = inspect.getsource(scheduler.scale_model_input) if hasattr(scheduler, "scale_model_input") else ""
    return "step_index" in source


def scaled_down(scheduler: Any) -> list[float]:
    """From how much the latents are scaled down for the model, in a run."""
    found, sample = [], torch.zeros(1, 4, 8, 8)
    data = scheduler.config.get("sigma_data", 1.0)
    for timestep in scheduler.timesteps:
        scale = float(scheduler.scale_model_input(ones(), timestep)) * data  # of signal and noise: 1 in all
        found.append(math.sqrt(max(1 / scale**2 - 1, 0)))
        sample = scheduler.step(torch.zeros(1, 4, 8, 8), timestep, sample).prev_sample
    return found


def added(scheduler: Any, place: int) -> float:
    """From what noise is added to a picture at this place, and what is left of the picture."""
    if hasattr(scheduler, "set_begin_index"):
        scheduler._step_index = None
        scheduler.set_begin_index(place)  # some have a timestep twice
    timestep = scheduler.timesteps[place].reshape(1)
    if hasattr(scheduler, "scale_noise"):
        noise = float(scheduler.scale_noise(zeros(), timestep, ones()))
        return noise / (1 - noise) if noise < 1 else math.inf
    noise, signal = (float(scheduler.add_noise(*mixed, timestep)) for mixed in ((zeros(), ones()), (ones(), zeros())))
    return noise / signal if signal else math.inf


def check(scheduler: Any) -> None:
    noise = told(scheduler)
    assert len(noise.places) == len(scheduler.timesteps)
    for sigma, real in zip(noise.sigmas, seen(scheduler), strict=True):
        assert sigma == pytest.approx(min(max(real, SMALLEST), LARGEST), rel=3e-3, abs=1e-3), noise.sigmas
    for step in range(len(noise.places)):
        assert 0 < noise.noise_share(step) <= LARGEST
        assert all(map(math.isfinite, noise.clean(step)))


@every_scheduler
@how(max_examples=6)
@given(steps=st.integers(5, 50))
def test_noise_levels_are_those_of_the_models_input(name, steps):
    check(set_up(SCHEDULERS[name](), steps))


def makeable() -> list[Any]:
    return [cls for cls in CLASSES if callable(getattr(cls, "set_timesteps", None))]


@pytest.mark.parametrize("cls", makeable(), ids=lambda cls: cls.__name__)
def test_every_scheduler_tells_its_noise_levels_or_nothing(cls):
    scheduler = build(cls)
    try:
        set_up(scheduler, 10)
    except (AttributeError, KeyError, TypeError, ValueError):
        pytest.skip("wants more than a number of steps")
    noise = noise_of(scheduler)
    assert (noise is None) == (cls.__name__.removesuffix("Scheduler") in MASKS | TIMES)
    if noise is not None:
        assert len(noise.places) == len(scheduler.timesteps)
        assert noise.falls == ("Inverse" not in cls.__name__)
        if {"scale_noise", "add_noise"} & set(dir(scheduler)) and cls.__name__ != "RePaintScheduler":
            check(scheduler)


SPACINGS: list[dict[str, Any]] = [
    *({f"use_{name}_sigmas": True} for name in ("karras", "exponential", "beta", "lu")),
    *({"timestep_spacing": name} for name in ("leading", "trailing", "linspace")),
    {"use_flow_sigmas": True, "prediction_type": "flow_prediction"},
    {"rescale_betas_zero_snr": True},
]


SPACED = [  # KDPM2 rounds the timesteps of Karras, which are then of other noise levels than its latents
    pytest.param(cls, options, id=f"{cls.__name__} {'='.join(map(str, next(iter(options.items()))))}")
    for cls in (
        DEISMultistepScheduler,
        DPMSolverMultistepScheduler,
        DPMSolverSinglestepScheduler,
        EulerDiscreteScheduler,
        HeunDiscreteScheduler,
        KDPM2DiscreteScheduler,
        LMSDiscreteScheduler,
        UniPCMultistepScheduler,
    )
    for options in SPACINGS
    if options.keys() <= inspect.signature(cls).parameters.keys()
    and not (cls is KDPM2DiscreteScheduler and "use_karras_sigmas" in options)
]


@pytest.mark.parametrize(("cls", "options"), SPACED)
@how(max_examples=3)
@given(steps=st.integers(5, 60))
def test_noise_levels_of_other_spacings(cls, options, steps):
    scheduler = set_up(cls(**BETAS, **options), steps)
    assert told(scheduler).is_flow == ("use_flow_sigmas" in options)
    check(scheduler)


@pytest.mark.parametrize(
    ("scheduler", "given"),
    [
        (DDPMScheduler(**BETAS), {"timesteps": [901, 700, 345, 3]}),
        (EulerDiscreteScheduler(**BETAS), {"timesteps": [901, 700, 345, 3]}),
        (EulerDiscreteScheduler(**BETAS), {"sigmas": [14.0, 3.5, 0.25, 0.0]}),
        (DPMSolverMultistepScheduler(**BETAS), {"timesteps": [999, 850, 650, 500, 10]}),
        (HeunDiscreteScheduler(**BETAS), {"timesteps": [901, 700, 345, 3]}),
        (FlowMatchEulerDiscreteScheduler(shift=3.0), {"sigmas": [1.0, 0.75, 0.5, 0.125]}),
    ],
)
def test_noise_levels_of_schedules_that_are_given(scheduler, given):
    scheduler.set_timesteps(**given)
    check(scheduler)


@pytest.mark.parametrize(
    "build",
    [
        lambda: DDIMScheduler(**BETAS, rescale_betas_zero_snr=True, timestep_spacing="trailing"),
        lambda: CogVideoXDDIMScheduler(rescale_betas_zero_snr=True, timestep_spacing="trailing"),
        lambda: CogVideoXDPMScheduler(rescale_betas_zero_snr=True, timestep_spacing="trailing"),
    ],
)
@pytest.mark.parametrize("prediction", ["v_prediction", "sample", "epsilon"])
def test_a_first_step_of_nothing_but_noise_is_a_number(build, prediction):
    scheduler = set_up(build(), 25)
    scheduler.register_to_config(prediction_type=prediction)
    noise = told(scheduler)
    assert noise.places[0] == LARGEST
    assert noise.places[1] < 100
    assert noise.falls
    check(scheduler)


def test_flows_are_told_from_noise_levels_by_what_they_are():
    mochi = set_up(FlowMatchEulerDiscreteScheduler(invert_sigmas=True), 10)
    assert mochi.timesteps[0] < mochi.timesteps[-1]
    assert told(mochi).is_flow
    assert told(mochi).places[0] == 1.0
    assert told(mochi).falls
    cosmos = FlowMatchEulerDiscreteScheduler()
    cosmos.set_timesteps(sigmas=[80.0, 10.0, 0.5])  # noise over signal, under the name of a flow
    assert not told(cosmos).is_flow
    assert told(cosmos).places == (80.0, 10.0, 0.5)


@given(shift=st.floats(0.5, 20), steps=st.integers(2, 60))
def test_a_flow_is_one_however_it_is_shifted(shift, steps):
    assert told(set_up(FlowMatchEulerDiscreteScheduler(shift=shift), steps)).is_flow


def test_noise_levels_that_rounding_makes_different_are_one():
    """The middle of an ancestral step of KDPM2 is at the noise level of the next step."""
    from diffusers import KDPM2AncestralDiscreteScheduler

    noise = told(set_up(KDPM2AncestralDiscreteScheduler(**BETAS), 20))
    assert noise.falls
    assert len(set(noise.places)) == 20
    gaps = [before - after for before, after in zip(noise.places, noise.places[1:], strict=False)]
    assert all(gap == 0 or gap > 1e-3 for gap in gaps)


def test_a_schedule_that_goes_up_does_not_fall():
    assert not Noise((3.0, 2.0, 2.5, 1.0), False, "epsilon", 1).falls
    assert Noise((3.0, 2.0, 2.0, 1.0), False, "epsilon", 1).falls


@pytest.mark.parametrize(
    "scheduler",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(timesteps=None),
        SimpleNamespace(timesteps=torch.ones(3, 2), sigmas=torch.ones(3)),
        SimpleNamespace(timesteps=torch.ones(3), sigmas=torch.full((4,), torch.nan)),
        SimpleNamespace(timesteps=torch.ones(3), sigmas=torch.ones(30)),
        SimpleNamespace(timesteps=torch.ones(0), sigmas=torch.ones(1)),
        SimpleNamespace(timesteps=torch.ones(3, device="meta"), sigmas=torch.ones(4)),
        SimpleNamespace(timesteps=torch.full((3,), torch.nan), alphas_cumprod=torch.linspace(0.99, 0.01, 100)),
    ],
    ids=str,
)
def test_what_tells_nothing_is_nothing(scheduler):
    assert noise_of(scheduler) is None


@pytest.mark.parametrize(
    ("build", "order"),
    [
        (lambda: DDIMScheduler(), 1),
        (lambda: EulerDiscreteScheduler(), 1),
        (lambda: DPMSolverMultistepScheduler(), 2),
        (lambda: DPMSolverMultistepScheduler(solver_order=1), 1),
        (lambda: UniPCMultistepScheduler(solver_order=3), 3),
        (lambda: SASolverScheduler(), 2),
        (lambda: LMSDiscreteScheduler(), 2),
        (lambda: CogVideoXDPMScheduler(), 2),
        (lambda: HeunDiscreteScheduler(), 2),
        (lambda: FlowMatchHeunDiscreteScheduler(), 2),
        (lambda: FlowMatchEulerDiscreteScheduler(), 1),
    ],
)
def test_the_order_of_a_solver(build, order):
    assert told(set_up(build(), 10)).order == order


def predicted(prediction: str, signal: float, noise: float, x0: Tensor, n: Tensor) -> Tensor:
    """What a perfect model says, given a mixture of a picture and noise."""
    says = {
        "epsilon": n,
        "sample": x0,
        "v_prediction": signal * n - noise * x0,
        "edm": noise * x0 - signal * n,
        "flow_prediction": n - x0,
    }
    return says[prediction]


MIXTURES = [(False, kind) for kind in ("epsilon", "sample", "v_prediction", "edm")]
MIXTURES += [(True, kind) for kind in ("epsilon", "sample", "flow_prediction")]


@pytest.mark.parametrize(("is_flow", "prediction"), MIXTURES)
@given(place=st.floats(0.01, 0.99), scale=st.sampled_from([1.0, 30.0]))
def test_what_a_prediction_is_worth_as_noise_and_as_a_picture(is_flow, prediction, place, scale):
    place = place if is_flow else place * scale
    signal, noise = (1 - place, place) if is_flow else (1 / math.sqrt(1 + place**2), place / math.sqrt(1 + place**2))
    levels = Noise((place,), is_flow, prediction, 1)
    torch.manual_seed(0)
    x = torch.randn(64, dtype=torch.double)  # two predictions for the same latents
    one, other = torch.randn(2, 64, dtype=torch.double)
    outputs = [predicted(prediction, signal, noise, x0, (x - signal * x0) / noise) for x0 in (one, other)]
    noises = [(x - signal * x0) / noise for x0 in (one, other)]
    difference = (outputs[0] - outputs[1]) * levels.noise_share(0)
    sign = 1 if torch.allclose(difference, noises[0] - noises[1]) else -1
    torch.testing.assert_close(sign * difference, noises[0] - noises[1])
    of_latents, of_output = levels.clean(0)
    torch.testing.assert_close(of_latents * x + of_output * outputs[0], one)


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
def test_models_of_edm_predict_a_velocity_whatever_it_is_called(kind):
    scheduler = set_up(EDMEulerScheduler(sigma_data=0.5, prediction_type=kind), 10)
    noise = told(scheduler)
    sigma = float(scheduler.sigmas[4])
    assert noise.places[4] == pytest.approx(sigma / 0.5)
    sample, output = torch.randn(2, 1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    given = scheduler.precondition_inputs(sample, sigma)
    of_latents, of_output = noise.clean(4)
    picture = scheduler.precondition_outputs(sample, output, sigma)
    torch.testing.assert_close(0.5 * (of_latents * given + of_output * output), picture, rtol=1e-4, atol=1e-5)
