"""What the tests of the embedded model share: the pipeline itself, and the way to the code that trained it."""

import sys
from pathlib import Path
from typing import Any

import pytest
import todome_flowers

from todome.pipelines import quiet_loading

sys.path.append(str(Path(__file__).parents[2] / "flowers" / "train"))  # last, for its modules have common names

KNOWN_WARNINGS = [
    "ignore:__array__ implementation:DeprecationWarning",  # diffusers' schedulers, numpy 2
    "ignore:__array_wrap__ must accept:DeprecationWarning",  # the same, in DEIS
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for known in KNOWN_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(known))


@pytest.fixture(scope="session")
def flowers() -> Any:
    """The embedded pipeline, opened once: whoever uses it leaves it as it was."""
    with quiet_loading():
        pipe = todome_flowers.load()
    pipe.set_progress_bar_config(disable=True)
    return pipe
