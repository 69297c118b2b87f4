"""kohya's sd-scripts: its UNets are found by name, with levels, factors and checkpoints as its users know them."""

from typing import Any

import pytest
import torch
from learners import SD, SDXL, Grid, Learner, gradients, loss_of
from torch import Tensor
from zoo import lively, recorded

import todome
from todome import Downsample

over_both = pytest.mark.parametrize("learner", [SD, SDXL], ids=lambda learner: learner.name)


def keys_of(learner: Learner, model: Any, grid: Grid) -> dict[int, set[int]]:
    """How many keys were left of how many tokens, whatever todome says of it."""
    with recorded(model, r"attn1\.to_[qk]$") as seen, torch.no_grad():
        model(**learner.batch(grid=grid))
    found: dict[int, set[int]] = {}
    for name, (keys,) in seen.items():
        if name.endswith("to_k"):
            found.setdefault(seen[name[:-1] + "q"][0].shape[1], set()).add(keys.shape[1])
    return found


@over_both
@pytest.mark.parametrize(
    ("factor", "left"),
    [
        (2, {384: {96}, 96: {96}}),
        ([4.0, 2.0], {384: {24}, 96: {24}}),
        ([1.0, 1.5], {384: {384}, 96: {32}}),
    ],
    ids=str,
)
def test_factors_by_depth_as_its_option_gives_them(learner: Learner, factor: Any, left: dict[int, set[int]]):
    """The first is for the finest level that has attention."""
    model = learner.build(False)
    todome.apply(model, Downsample(factor=factor))
    assert keys_of(learner, model, (16, 24)) == left


def test_buckets_take_turns():
    """Some have an odd side, where a grid guessed from the number of tokens, as in the pull request, breaks."""
    model = SD.build(False)
    patch = todome.apply(model, Downsample(factor=(2, 2)))
    buckets = [(12, 16), (15, 21), (16, 12), (17, 16), (12, 16)]
    for step, (height, width) in enumerate(buckets):
        patch.at(step, len(buckets))
        fine, coarse = (height, width), (-(-height // 2), -(-width // 2))
        assert keys_of(SD, model, (height, width)) == {h * w: {(h // 2) * (w // 2)} for h, w in (fine, coarse)}


class Linear(torch.nn.Module):
    """A LoRA as sd-scripts has it: it takes the place of a layer's forward, and keeps the layer's."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.down = torch.nn.Linear(layer.in_features, 2, bias=False)
        self.up = torch.nn.Linear(2, layer.out_features, bias=False)
        self.before, layer.forward = layer.forward, self.forward

    def forward(self, x: Tensor) -> Tensor:
        return self.before(x) + self.up(self.down(x))


def with_network(learner: Learner, checkpointed: bool) -> tuple[Any, torch.nn.ModuleList]:
    model = learner.build(checkpointed).requires_grad_(False)
    layers = [module for name, module in model.named_modules() if name.endswith((".to_q", ".to_k", ".to_v"))]
    return model, lively(lambda: torch.nn.ModuleList([Linear(layer) for layer in layers]))


@over_both
def test_its_networks_learn_the_same_with_checkpoints(learner: Learner):
    """With a call for a prior in between, as sd-scripts makes one where it preserves what the model could do."""
    found = []
    for checkpointed in (False, True):
        model, network = with_network(learner, checkpointed)
        patch = todome.apply(model, Downsample(factor=(2, 2), phase="random"))
        patch.at(3, 10)
        loss = loss_of(model(**learner.batch()))
        with torch.no_grad():
            model.eval()(**learner.batch(batch=1))
        model.train()
        found.append(gradients(network, [loss]))
        assert len(found[-1]) == len(list(network.parameters()))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
