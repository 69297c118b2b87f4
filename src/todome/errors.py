"""The wording of bad input, and the error of a model that cannot be reduced."""

from typing import Any

LONGEST = 500  # characters of a value


class NothingToReduce(ValueError):
    """The model has no self-attention over image tokens that todome knows how to reduce."""


def invalid_value(field: str, value: Any, allowed: str, remedy: str, kind: type[Exception] = ValueError) -> Exception:
    """The error for a value that was given: it names the field, the value, what is allowed, what to do instead."""
    try:
        shown = repr(value)
    except (RecursionError, ValueError):  # a number of thousands of digits, brackets in brackets
        shown = type(value).__name__
    if "\n" in shown or len(shown) > LONGEST:  # models and schedulers write pages about themselves
        shown = type(value).__name__
    return kind(f"{field}={shown} cannot be used. Allowed: {allowed}. {remedy}.")
