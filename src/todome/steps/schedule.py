"""The place of a timestep in the schedule of a scheduler."""

from typing import Any

from torch import Tensor

from .run import first_number


def place_of_view(schedule: Any, timestep: Any) -> int | None:
    """The place in the schedule that a timestep is a view of, without a look at its value.

    `for t in scheduler.timesteps` hands out views of one tensor: they share its storage, and their offset is the place.
    """
    if not (isinstance(timestep, Tensor) and isinstance(schedule, Tensor)) or schedule.ndim != 1:
        return None
    if not is_one_element(timestep) or not share_storage(schedule, timestep):
        return None
    place, rest = divmod(timestep.storage_offset() - schedule.storage_offset(), schedule.stride(0) or 1)
    return place if not rest and 0 <= place < len(schedule) else None


def is_one_element(timestep: Tensor) -> bool:
    """Whether it is one element, also where it is expanded to a batch."""
    return timestep.numel() > 0 and all(
        n == 1 or step == 0 for n, step in zip(timestep.shape, timestep.stride(), strict=True)
    )


def share_storage(schedule: Tensor, timestep: Tensor) -> bool:
    try:
        return schedule.untyped_storage()._cdata == timestep.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return False  # the tensors of torch.func have no storage of their own


def place_of_value(schedule: Any, timestep: Any, least: int) -> int | None:
    """The place at which a schedule has the value of a timestep, where both can be read without waiting for a device.

    Schedules of second order have values twice: of several places it is the first that is not before `least`.
    """
    if not isinstance(schedule, Tensor) or schedule.device.type != "cpu" or waits(timestep):
        return None
    return nearest(places_with(schedule, timestep), least)


def waits(timestep: Any) -> bool:
    """Whether reading a timestep would wait for its device."""
    return isinstance(timestep, Tensor) and timestep.device.type != "cpu"


def places_with(schedule: Tensor, timestep: Any) -> list[int]:
    value = first_number(timestep)
    return [] if value is None else [place for place, known in enumerate(schedule.tolist()) if known == value]


def nearest(places: list[int], least: int) -> int | None:
    return next((place for place in places if place >= least), places[-1] if places else None)
