"""A small plan, which the tests of evaluations draw."""

from typing import Any

import pytest

from todome.tools.measuring.evaluation import plan_for

SIZE = (32, 32)
PLAN = plan_for(prompts=["a rose", "a tulip"], methods=["todome:2"], sizes=(SIZE,), pictures=3, batch=2, steps=2)
BATCHES = [(2, 1), (2, 2), (1, 2)]  # the warm-up of one step, and two batches, as (pictures, steps)


def refusal(call: Any, kind: type[Exception] = ValueError) -> str:
    with pytest.raises(kind) as error:
        call()
    return str(error.value)
