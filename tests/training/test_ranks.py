"""Data-parallel training: every rank makes the same choice, and the gradients are those of one process."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from data_parallel import REDUCTIONS, learn
from fresh import DRAWING, python_after
from naive import same_rows
from torch import Tensor

RANKS = 2
CASES = [f"{type(reduction).__name__}-{when}" for reduction in REDUCTIONS for when in ("call-1", "call-2", "at")]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What every one of two processes saw and learnt."""
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("data_parallel.py")
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    running = [
        subprocess.Popen([python_after(DRAWING), str(script), str(rank), str(RANKS), str(folder)], env=environment)
        for rank in range(RANKS)
    ]
    try:
        assert [process.wait(timeout=300) for process in running] == [0] * RANKS
    finally:
        for process in running:
            process.kill()  # one that waits for the other
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.fixture(scope="module")
def alone() -> list[dict[str, Any]]:
    return learn(0, 1)


def kept_rows(run: dict[str, Any]) -> list[Tensor]:
    """The tokens that were keys, layer by layer."""
    return [same_rows(found["keys"][0], found["norm"][0]) for found in run["seen"].values()]


@pytest.mark.parametrize("case", range(len(CASES)), ids=CASES)
def test_gradients_are_those_of_one_process(case: int, ranks: Any, alone: Any):
    first, second, whole = (run[case]["gradients"] for run in (*ranks, alone))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(first, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", range(3), ids=CASES[:3])
def test_every_rank_keeps_the_same_keys(case: int, ranks: Any, alone: Any):
    first, second, whole = (kept_rows(run[case]) for run in (*ranks, alone))
    assert [len(rows) for rows in whole] == [20, 6, 6, 20]
    torch.testing.assert_close(first, whole)
    torch.testing.assert_close(second, whole)


def test_the_choice_moves_from_step_to_step(alone: Any):
    once, again, later = (kept_rows(run)[0].tolist() for run in alone[:3])
    assert once != again
    assert again != later
