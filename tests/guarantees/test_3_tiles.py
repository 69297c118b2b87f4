"""Guarantee 3 where something regroups the tokens inside of the attention, as HyperTile does."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from zoo import is_image_attention, ldm_unet, run, small_unet, token_counts, unet_inputs
from zoo.hosts import Host
from zoo.inputs import ldm_inputs

import todome
from todome import Downsample


class Tiles:
    """Attention over tiles, put around an attention's `forward`: (rows, columns) of tiles of a known grid."""

    def __init__(self, attention: Any, grid: tuple[int, int], cut: tuple[int, int]) -> None:
        self.forward, self.grid, self.cut = attention.forward, grid, cut

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        (height, width), (rows, columns) = self.grid, self.cut
        if x.shape[1] != height * width:
            return self.forward(x, *args, **kwargs)
        size = height // rows, width // columns
        x = x.unflatten(1, (rows, size[0], columns, size[1]))  # (batch, rows, h, columns, w, channels)
        tiles = x.permute(0, 1, 3, 2, 4, 5).flatten(3, 4).flatten(0, 2)  # (batch x tiles, h x w, channels)
        out = self.forward(tiles, *args, **kwargs)
        out = out.unflatten(0, (-1, rows, columns)).unflatten(3, size)
        return out.permute(0, 1, 3, 2, 4, 5).flatten(3, 4).flatten(1, 3)


def with_tiles(model: nn.Module, grid: tuple[int, int], cut: tuple[int, int]) -> nn.Module:
    for name, module in model.named_modules():
        if is_image_attention(name):
            module.forward = Tiles(module, grid, cut)
    return model


HOSTS = {
    "diffusers": (small_unet, lambda grid: unet_inputs(2, grid)),
    "ldm": (ldm_unet, lambda grid: ldm_inputs() | {"x": unet_inputs(2, grid)["sample"]}),
}
over_hosts = pytest.mark.parametrize(("build", "inputs"), HOSTS.values(), ids=HOSTS)


@over_hosts
def test_a_double_of_hypertile_changes_the_output(build: Any, inputs: Any):
    tiled, plain = run(with_tiles(build(), (14, 10), (7, 1)), **inputs((14, 10))), run(build(), **inputs((14, 10)))
    assert not torch.allclose(tiled, plain, atol=1e-4)


@over_hosts
@pytest.mark.parametrize("first", ["tiles", "todome"])
def test_tiles_keep_one_key_in_four_of_their_own_grid(build: Any, inputs: Any, first: str):
    model = build()
    if first == "tiles":
        with_tiles(model, (14, 10), (7, 1))
    patch = todome.apply(model, Downsample(factor=2))
    if first == "todome":
        with_tiles(model, (14, 10), (7, 1))
    host = Host("tiled", lambda: model, lambda: inputs((14, 10)))
    for step in range(4):
        patch.at(step, 4)
        seen = {count for name, count in token_counts(host, model).items() if is_image_attention(name)}
        assert 1 * 5 in seen
        assert 14 * 10 not in seen
    assert (2, 10) in {grid for level in patch.levels for grid in level.grids}


@over_hosts
def test_keys_of_a_tile_are_those_of_its_own_tokens(build: Any, inputs: Any):
    """Changing one tile changes nothing in the attention of another."""
    model = with_tiles(build(), (14, 10), (7, 1))
    todome.apply(model, Downsample(factor=2)).at(0, 4)
    run(model, **inputs((14, 10)))
    attention: Any = next(module for name, module in model.named_modules() if is_image_attention(name))
    x = torch.randn(2, 14 * 10, attention.to_q.in_features, generator=torch.Generator().manual_seed(0))
    changed = torch.cat([x[:, : 2 * 10], x[:, 2 * 10 :] + 1], 1)
    with torch.no_grad():
        one, other = attention(x), attention(changed)
    assert torch.equal(one[:, : 2 * 10], other[:, : 2 * 10])
    assert not torch.allclose(one[:, 2 * 10 :], other[:, 2 * 10 :], atol=1e-4)


@over_hosts
def test_tiles_that_can_be_cut_in_several_ways_stay_dense_and_it_is_said_once(build: Any, inputs: Any):
    model = with_tiles(build(), (16, 18), (2, 2))
    tiled = run(model, **inputs((16, 18)))
    patch = todome.apply(model, Downsample(factor=2))
    patch.at(0, 4)
    with pytest.warns(UserWarning, match=r"sees its 16x18 tokens in 4 tiles.*left dense\. Turn HyperTile off") as said:
        outputs = [run(model, **inputs((16, 18))) for _ in range(2)]
    assert len(said) == 1
    assert all(torch.equal(output, tiled) for output in outputs)
    assert (16, 18) not in {grid for level in patch.levels for grid in level.grids}
