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
    offset = int(timestep.storage_offset()) - int(schedule.storage_offset())
    place, rest = divmod(offset, int(schedule.stride(0)) or 1)
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


def place_of_value(schedule: Any, timestep: Any, least: int, may_wait: bool = False) -> int | None:
    """The place at which a schedule has the value of a timestep, where it can be read without waiting for a device.

    Schedules of second order have values twice: of several places it is the first that is not before `least`.
    """
    elsewhere = any(isinstance(one, Tensor) and one.device.type != "cpu" for one in (schedule, timestep))
    if not isinstance(schedule, Tensor) or schedule.is_meta or (elsewhere and not may_wait):
        return None
    value = first_number(timestep)
    places = [] if value is None else [place for place, known in enumerate(schedule.tolist()) if known == value]
    return next((place for place in places if place >= least), places[-1] if places else None)
