"""One process of a data-parallel training, and the same training in one process alone.

It imports little, since it is started anew for every rank:
`python data_parallel.py RANK RANKS FOLDER` leaves what it saw and learnt in FOLDER/RANK.pt.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from kohya_double import WIDTH, UNet2DConditionModel
from naive import observed
from torch import Tensor, distributed

import todome

REDUCTIONS: list[Any] = [todome.Downsample(factor=(2, 2), phase="random", seed=7), todome.Merge(seed=7)]
STEP, STEPS, PICTURES = 5, 20, 4


def learn(rank: int, ranks: int) -> list[dict[str, Any]]:
    """What one process makes of its share of every batch: twice by its calls alone, and then driven by `at`."""
    found = []
    for reduction in REDUCTIONS:
        torch.manual_seed(0)
        model: Any = UNet2DConditionModel()
        shared = model if ranks == 1 else torch.nn.parallel.DistributedDataParallel(model)
        todome.apply(shared, reduction)
        found += [step(model, shared, share(rank, ranks, later)) for later in range(2)]
        todome.apply(shared, reduction).at(STEP, STEPS)
        found.append(step(model, shared, share(rank, ranks)))
    return found


def share(rank: int, ranks: int, later: int = 0) -> list[Tensor]:
    """A rank's share of a batch; its timesteps are lower by `later`, by which calls are told apart."""
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn(PICTURES, 4, 9, 11, generator=generator)
    words = torch.randn(PICTURES, 5, WIDTH, generator=generator)
    timesteps = torch.arange(PICTURES) * 200 + 1 - later
    return [one.chunk(ranks)[rank] for one in (latents, timesteps, words)]


def step(model: Any, shared: Any, batch: list[Tensor]) -> dict[str, Any]:
    model.zero_grad()
    with observed(model) as seen:
        shared(*batch).sample.square().mean().backward()
    return {"gradients": [parameter.grad for parameter in model.parameters()], "seen": seen}


if __name__ == "__main__":
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    torch.save(learn(rank, ranks), folder / f"{rank}.pt")
    distributed.destroy_process_group()
