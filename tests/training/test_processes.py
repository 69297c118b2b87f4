"""Two processes that accelerate joins: the same choice in each, so that their gradients are those of one process.

It imports little, since it is also what each of them runs: `python test_processes.py FOLDER` leaves what it learnt in
FOLDER/RANK.pt.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from kohya_double import WIDTH, UNet2DConditionModel
from torch import Tensor

import todome

REDUCTIONS: list[Any] = [todome.Downsample(factor=(2, 2), phase="random", seed=7), todome.Merge(seed=7)]
RANKS, PICTURES = 2, 4


def learn(rank: int, ranks: int, prepare: Any) -> list[list[Tensor]]:
    """The gradients of a share of every batch: twice by the calls alone, and then driven by `at`."""
    found = []
    for reduction in REDUCTIONS:
        torch.manual_seed(0)
        model: Any = UNet2DConditionModel()
        shared = prepare(model)
        patch = todome.apply(shared, reduction)
        for step in (None, None, 5):
            if step is not None:
                patch.at(step, 20)
            model.zero_grad()
            shared(*share(rank, ranks, len(found))).sample.square().mean().backward()
            found.append([weight.grad.clone() for weight in model.parameters()])
    return found


def share(rank: int, ranks: int, later: int) -> list[Tensor]:
    """A rank's share of a batch; its timesteps are lower by `later`, by which calls are told apart."""
    chance = torch.Generator().manual_seed(1)
    latents, words = (torch.randn(PICTURES, *size, generator=chance) for size in ((4, 9, 11), (5, WIDTH)))
    return [one.chunk(ranks)[rank] for one in (latents, torch.arange(PICTURES) * 200 + 10 - later, words)]


@pytest.mark.thorough
def test_gradients_are_those_of_one_process(tmp_path: Path):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", __file__]
    variables = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    subprocess.run([*words, tmp_path], check=True, env=variables, capture_output=True, timeout=300)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(RANKS))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(first, learn(0, 1, lambda model: model), rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == RANKS
    rank = accelerator.process_index
    torch.save(learn(rank, RANKS, accelerator.prepare), Path(sys.argv[1], f"{rank}.pt"))
    accelerator.end_training()
