"""kohya's sd-scripts: its UNets are found by name, with levels, factors and checkpoints as its users know them."""

import re
from typing import Any

import kohya_double
import pytest
import torch
from learners import LEARNERS, Learner, gradients, loss_of, sdxl_batch, unet_batch
from naive import observed, same_rows
from torch import Tensor
from zoo import lively

import todome
from todome import Downsample

SD, SDXL = LEARNERS[-2:]


def sd() -> Any:
    return lively(kohya_double.UNet2DConditionModel)


def sdxl() -> Any:
    return lively(kohya_double.SdxlUNet2DConditionModel)


def keys_of(model: Any, batch: dict[str, Any]) -> dict[int, set[int]]:
    """How many keys were left of how many tokens, whatever todome says of it."""
    with observed(model) as seen, torch.no_grad():
        model(**batch)
    found: dict[int, set[int]] = {}
    for layer in seen.values():
        found.setdefault(layer["norm"].shape[1], set()).add(layer["keys"].shape[1])
    return found


def test_a_factor_is_for_the_finest_level_that_has_attention():
    model = sdxl()
    patch = todome.apply(model, Downsample(factor=2))
    assert keys_of(model, sdxl_batch(grid=(16, 24))) == {384: {96}, 96: {96}}  # of latents of 32 x 48
    assert str(patch).splitlines()[1:] == [
        "  level 1, 3 layers: factor 2, 16x24 = 384 -> 96 keys",
        "  level 2, 3 layers: dense",
    ]


@pytest.mark.parametrize(
    ("factor", "left"),
    [(2, {384: {96}, 96: {96}}), ((2, 2), {384: {96}, 96: {24}}), ((4, 2), {384: {24}, 96: {24}})],
    ids=["2", "2 2", "4 2"],
)
@pytest.mark.parametrize(("build", "batch"), [(sd, unet_batch), (sdxl, sdxl_batch)], ids=["sd", "sdxl"])
def test_factors_by_depth_as_its_option_gives_them(build: Any, batch: Any, factor: Any, left: dict[int, set[int]]):
    model = build()
    todome.apply(model, Downsample(factor=factor))
    assert keys_of(model, batch(grid=(16, 24))) == left


def test_the_list_that_its_option_parses_to():
    model = sd()
    todome.apply(model, Downsample(factor=[2.0, 1.5]))
    assert keys_of(model, unet_batch(grid=(16, 24))) == {384: {96}, 96: {32}}


@pytest.mark.parametrize("grid", [(15, 21), (9, 13), (17, 16)], ids=str)
def test_buckets_with_an_odd_side(grid: tuple[int, int]):
    """Where a grid guessed from the number of tokens, as in the pull request, breaks."""
    model = sd()
    patch = todome.apply(model, Downsample(factor=(2, 2)))
    fine, coarse = grid, (-(-grid[0] // 2), -(-grid[1] // 2))
    left = {h * w: {(h // 2) * (w // 2)} for h, w in (fine, coarse)}
    assert keys_of(model, unet_batch(grid=grid)) == left
    assert [list(level.grids) for level in patch.levels] == [[fine], [coarse]]


def test_buckets_take_turns():
    """A new size at every step, and every one with all of its cells."""
    model = sd()
    patch = todome.apply(model, Downsample(factor=2))
    for step, grid in enumerate([(12, 16), (16, 12), (14, 14), (12, 16)]):
        patch.at(step, 4)
        with observed(model) as seen, torch.no_grad():
            model(**unet_batch(grid=grid))
        layer = next(iter(seen.values()))
        rows = same_rows(layer["keys"][0], layer["norm"][0])
        cells = rows // grid[1] // 2 * (grid[1] // 2) + rows % grid[1] // 2
        assert sorted(cells.tolist()) == list(range(grid[0] * grid[1] // 4))


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


@pytest.mark.parametrize("learner", [SD, SDXL], ids=str)
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
    assert all(torch.equal(plain, again) for plain, again in zip(*found, strict=True))


@pytest.mark.parametrize("build", [sd, sdxl])
def test_too_many_factors_are_refused(build: Any):
    message = (
        "factor=(2, 2, 2) cannot be used. Allowed: at most 2 values, one for each level this model has. "
        "Leave out the last 1."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        todome.apply(build(), Downsample(factor=[2, 2, 2]))
