"""The noise levels of a run, and what follows from them: what a prediction is worth as noise, how a solver errs.

With x = signal + sigma * noise, sigma is the noise over the signal. A flow mixes the two, x = (1 - t) signal + t noise:
there the place is t itself, and sigma = t / (1 - t) tells how far the picture is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MULTISTEP = {"PNDMScheduler", "LMSDiscreteScheduler", "IPNDMScheduler"}  # of higher order, and do not say so
SMALLEST = 1e-4  # of a noise level: the last one of some schedules is 0
LARGEST = 1e4


@dataclass(frozen=True)
class Noise:
    """The noise levels of a run.

    Args:
        places: What values are extrapolated along, for each step: sigma, or the time of a flow.
        is_flow: Whether it is a flow.
        prediction: What the model predicts, as schedulers call it.
        order: Of the solver. One that looks back at what the model said before makes more of an error there.
    """

    places: tuple[float, ...]
    is_flow: bool
    prediction: str
    order: int

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Noise over signal."""
        if not self.is_flow:
            return self.places
        return tuple(min(t / max(1 - t, 1 / LARGEST), LARGEST) for t in self.places)

    @property
    def falls(self) -> bool:
        """Whether it never rises, as schedules of a few samplers do."""
        return all(after <= before for before, after in zip(self.places, self.places[1:], strict=False))

    def noise_share(self, step: int) -> float:
        """What a difference of two predictions is multiplied with to be one of two noises.

        Guidance is nearly a straight line as a difference of noises, and less so as one of velocities.
        """
        place = self.places[step]
        if self.is_flow:
            return max(1 - place, 1 / LARGEST)
        signal = 1 / math.sqrt(1 + place**2)
        shares = {"v_prediction": signal, "sample": 1 / max(place, SMALLEST)}
        return shares.get(self.prediction, 1.0)


def noise_of(scheduler: Any) -> Noise | None:
    """The noise levels of the run that a scheduler is set up for; None where it does not tell."""
    config = getattr(scheduler, "config", {})
    read = config.get if hasattr(config, "get") else lambda name, default=None: default
    prediction = str(read("prediction_type", "epsilon"))
    is_flow = "Flow" in type(scheduler).__name__ or bool(read("use_flow_sigmas")) or prediction.startswith("flow")
    places = places_of(scheduler, is_flow)
    if places is None or not all(map(math.isfinite, places)):
        return None
    return Noise(tuple(places), is_flow, prediction, order_of(scheduler, read("solver_order")))


def order_of(scheduler: Any, solver_order: Any) -> int:
    if isinstance(solver_order, int):
        return solver_order
    several = type(scheduler).__name__ in MULTISTEP or getattr(scheduler, "order", 1) == 2
    return 2 if several else 1


def places_of(scheduler: Any, is_flow: bool) -> Sequence[float] | None:
    timesteps = getattr(scheduler, "timesteps", None)
    if not isinstance(timesteps, Tensor) or timesteps.ndim != 1 or timesteps.is_meta:
        return None
    sigmas, alphas = getattr(scheduler, "sigmas", None), getattr(scheduler, "alphas_cumprod", None)
    known = isinstance(sigmas, Tensor) and len(sigmas) == len(timesteps) + 1 and getattr(scheduler, "order", 1) == 1
    if (known or is_flow or alphas is None) and isinstance(sigmas, Tensor) and len(sigmas) >= len(timesteps):
        return [max(sigma, SMALLEST) for sigma in sigmas[: len(timesteps)].tolist()]
    if isinstance(alphas, Tensor):
        return sigmas_at(timesteps.detach().cpu().double(), alphas.detach().cpu().double())
    return None


def sigmas_at(timesteps: Tensor, alphas: Tensor) -> list[float]:
    """The noise levels of timesteps, also of those between two that the model was trained with."""
    logs = ((1 - alphas) / alphas).clamp_min(SMALLEST**2).log() / 2
    low = timesteps.floor().long().clamp(0, len(alphas) - 1)
    high = (low + 1).clamp_max(len(alphas) - 1)
    share = (timesteps - low).clamp(0, 1)
    return torch.lerp(logs[low], logs[high], share).exp().tolist()
