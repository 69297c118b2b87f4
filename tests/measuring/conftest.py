"""A finished evaluation, and what the tests of evaluations watch."""

import functools
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_evaluation import PLAN
from small_tuning import SMALL, counting

import todome
from todome.tools.measuring.evaluation import carry_out
from todome.tools.measuring.runs import EvaluationPlan
from todome.tools.pipelines import open_pipeline


@pytest.fixture(scope="session")
def finished(flowers: Any, lpips: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    carry_out(PLAN, folder, pipe=flowers, lpips=lpips)
    return folder


@pytest.fixture(scope="session")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, todome.Plan]:
    """The folder of a finished tuning, and its plan."""
    folder, pipe = tmp_path_factory.mktemp("tuning"), open_pipeline(model, "cpu")
    pipe.set_progress_bar_config(disable=True)
    return folder, todome.tune(pipe, **SMALL, keep=30, out=folder, options=counting(pipe))


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A finished run, of which a test may change what it likes."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


class Calls(list[tuple[int, int]]):
    """How many pictures in how many steps a pipeline was asked for, each time. It can be interrupted after so many."""

    most = math.inf


@pytest.fixture
def calls(flowers: Any, monkeypatch: pytest.MonkeyPatch) -> Calls:
    seen, own = Calls(), type(flowers).__call__

    @functools.wraps(own)
    def call(self: Any, prompt: list[str], **options: Any) -> Any:
        if len(seen) >= seen.most:
            raise KeyboardInterrupt
        seen.append((len(prompt), options["num_inference_steps"]))
        return own(self, prompt, **options)

    monkeypatch.setattr(type(flowers), "__call__", call)
    return seen


@pytest.fixture
def again(flowers: Any, folder: Path, lpips: Path) -> Any:
    def again(plan: EvaluationPlan = PLAN, **options: Any) -> Any:
        return carry_out(plan, folder, pipe=flowers, **{"lpips": lpips, **options})

    return again
