"""Checks of numbers that levers share, and how values are written for people."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from ..errors import invalid_value


def is_number(value: Any) -> bool:
    """Whether it is a number, and none that is too large to compute with."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def is_count(value: Any, least: int = 1) -> bool:
    """Whether it is a whole number of at least so many."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def plain_number(value: Any) -> Any:
    """A number of Python's own for one of numpy's, which JSON does not know."""
    return int(value) if isinstance(value, Integral) else float(value)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A setting for several levels as it is, a single one as that of level 1."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def like_given(given: Any, numbers: tuple[Any, ...]) -> Any:
    """Checked numbers as plain ones: a tuple where several were given."""
    plain = tuple(map(plain_number, numbers))
    return plain if isinstance(given, (list, tuple)) else plain[0]


def checked_fraction(field: str, value: Any, remedy: str) -> float:
    """A fraction of the steps."""
    if not is_number(value) or not 0 <= value <= 1:
        raise invalid_value(field, value, "a fraction of the steps from 0 to 1", remedy)
    return plain_number(value)


def checked_seed(seed: Any) -> int:
    if not is_count(seed, least=0):
        raise invalid_value("seed", seed, "a whole number of at least 0", "The default is seed=0")
    return int(seed)


def check_flags(lever: Any, *fields: str) -> None:
    for field in fields:
        value = getattr(lever, field)
        if not isinstance(value, bool):
            raise invalid_value(field, value, "True or False", f"Use {field}=True or leave it out", TypeError)


def format_grid(grid: Sequence[int]) -> str:
    return "x".join(map(str, grid))
