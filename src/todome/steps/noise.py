"""The noise levels of a run, and what follows from them: what a prediction is worth as noise, how a solver errs.

With x = signal + sigma * noise, sigma is the noise over the signal. A flow mixes the two, x = (1 - t) signal + t noise:
there the place is t itself, and sigma = t / (1 - t) tells how far the picture is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MULTISTEP = {"PNDMScheduler", "LMSDiscreteScheduler", "IPNDMScheduler", "CogVideoXDPMScheduler"}  # that do not say so
SMALLEST, LARGEST = 1e-4, 1e4  # of the noise levels told: the last one of some schedules is 0, the first one infinite
ROUNDING = 1e-4  # two noise levels that differ by less are one: they went through a scheduler's logarithms


@dataclass(frozen=True)
class Noise:
    """The noise levels of a run.

    Args:
        places: What values are extrapolated along, for each step: sigma, or the time of a flow.
        is_flow: Whether it is a flow.
        prediction: What the model predicts, as schedulers call it; "edm" is a velocity with the other sign.
        order: Of the solver. One that looks back at what the model said before makes more of an error there.
    """

    places: tuple[float, ...]
    is_flow: bool
    prediction: str
    order: int

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Noise over signal."""
        return tuple(t / max(1 - t, 1 / LARGEST) for t in self.places) if self.is_flow else self.places

    @property
    def falls(self) -> bool:
        """Whether it never rises, as schedules of a few samplers do."""
        return all(after <= before for before, after in zip(self.places, self.places[1:], strict=False))

    def mixture(self, step: int) -> tuple[float, float]:
        """How much signal and how much noise are in what the model is given."""
        place = self.places[step]
        return (1 - place, place) if self.is_flow else (1 / math.hypot(1, place), place / math.hypot(1, place))

    def noise_share(self, step: int) -> float:
        """What a difference of two predictions is multiplied with to be one of two noises, up to its sign.

        Guidance is nearly a straight line as a difference of noises, and less so as one of velocities.
        """
        signal, noise = self.mixture(step)
        shares = {"epsilon": 1.0, "sample": signal / noise}
        return max(shares.get(self.prediction, signal), 1 / LARGEST)

    def clean(self, step: int) -> tuple[float, float]:
        """What latents and output are multiplied with, so that their sum is the picture that is predicted."""
        signal, noise = self.mixture(step)
        velocity = 1.0 if self.is_flow else signal, -noise
        if self.prediction == "epsilon":
            signal = max(signal, 1 / LARGEST)
            return 1 / signal, -noise / signal
        return {"sample": (0.0, 1.0), "edm": (signal, noise)}.get(self.prediction, velocity)


def noise_of(scheduler: Any) -> Noise | None:
    """The noise levels of the run that a scheduler is set up for; None where it does not tell."""
    config = getattr(scheduler, "config", None)
    config = config if isinstance(config, Mapping) else {}
    levels = levels_of(scheduler)
    if not levels or any(map(math.isnan, levels)):
        return None
    if config.get("invert_sigmas"):  # of Mochi: how much signal there is
        levels = [1 - level for level in levels]
    data = config.get("sigma_data")  # of EDM: how large signals are
    if data:
        prediction = "v_prediction" if config.get("prediction_type") == "v_prediction" else "edm"
        return Noise(usable([level / data for level in levels]), False, prediction, order_of(scheduler, config))
    is_flow = bool(config.get("use_flow_sigmas")) or (not has_alphas(scheduler) and max(levels) < 1 + ROUNDING)
    prediction = str(config.get("prediction_type", "flow_prediction" if is_flow else "epsilon"))
    return Noise(usable(levels, 1.0 if is_flow else LARGEST), is_flow, prediction, order_of(scheduler, config))


def usable(levels: Sequence[float], largest: float = LARGEST) -> tuple[float, ...]:
    """Noise levels that can be computed with, of which those are equal that differ by rounding alone."""
    found: list[float] = []
    for level in levels:
        level = min(max(level, SMALLEST), largest)
        same = found and abs(level - found[-1]) <= ROUNDING * level
        found.append(found[-1] if same else level)
    return tuple(found)


def order_of(scheduler: Any, config: Mapping[str, Any]) -> int:
    said = config.get("solver_order", config.get("predictor_order"))
    if isinstance(said, int):
        return said
    return 2 if type(scheduler).__name__ in MULTISTEP or getattr(scheduler, "order", 1) == 2 else 1


def has_alphas(scheduler: Any) -> bool:
    return isinstance(getattr(scheduler, "alphas_cumprod", None), Tensor)


def levels_of(scheduler: Any) -> list[float] | None:
    """What a scheduler says of its noise levels: by step, where it has them, else by the timesteps."""
    timesteps: Any = getattr(scheduler, "timesteps", None)
    sigmas: Any = getattr(scheduler, "sigmas", None)
    if not isinstance(timesteps, Tensor) or timesteps.ndim != 1 or timesteps.is_meta:
        return None
    between = getattr(scheduler, "order", 1) != 1  # some of these call the model between two of their noise levels
    by_step = isinstance(sigmas, Tensor) and not (between and has_alphas(scheduler))
    if by_step and len(sigmas) - len(timesteps) in (0, 1):
        return sigmas[: len(timesteps)].tolist()
    if has_alphas(scheduler):
        return sigmas_at(timesteps.detach().cpu().double(), scheduler.alphas_cumprod.detach().cpu().double())
    return None


def sigmas_at(timesteps: Tensor, alphas: Tensor) -> list[float]:
    """The noise levels of timesteps, also of those between two that the model was trained with."""
    logs = ((1 - alphas) / alphas).clamp(SMALLEST**2, LARGEST**2).log() / 2
    low = timesteps.floor().long().clamp(0, len(alphas) - 1)
    high = (low + 1).clamp_max(len(alphas) - 1)
    share = (timesteps - low).clamp(0, 1)
    return torch.lerp(logs[low], logs[high], share).exp().tolist()
