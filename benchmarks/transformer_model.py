"""A small diffusion transformer without a convolution: a token for each latent pixel, as many as the embedded UNet has.

DiT (Peebles & Xie, arXiv 2212.09748) with one modulation for all blocks (adaLN-single, PixArt, arXiv 2310.00426),
rotary positions (Su et al., arXiv 2104.09864) along height and width, and normalised queries and keys.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from todome import Downsample
from todome.hooks.keys import KeptKeys
from todome.tokens.grid import Grid, kept_rows

Rows: TypeAlias = Callable[[int, Grid], Tensor]  # which keys a layer keeps, by its number and the grid
HEAD = 64  # channels


def rows_of(reduction: object, step: int, device: torch.device) -> Rows | None:
    """The rows that todome keeps in this step, with a seed for every layer as in a UNet; looked up once."""
    if not isinstance(reduction, Downsample):
        return None

    @cache
    def rows(layer: int, grid: Grid) -> Tensor:
        table = KeptKeys.build_table(reduction, reduction.levels(1)[1], grid, reduction.seed_of(layer))
        return kept_rows(table, reduction.phase_index(step)).to(device)

    return rows


def waves(positions: Tensor, channels: int, longest: float) -> Tensor:
    """Angles (positions, channels / 2), from one radian a step down to `longest` times slower."""
    speeds = torch.exp(-math.log(longest) * torch.arange(channels // 2, device=positions.device) / (channels // 2))
    return positions[:, None] * speeds


def rotation_of(grid: Grid, device: torch.device) -> Tensor:
    """Angles of every token, (tokens, HEAD / 2): one half for its row, one for its column."""
    axes = [torch.arange(length, device=device).float() for length in grid]
    y, x = (waves(axis, HEAD // 2, 100.0) for axis in axes)
    height, width = grid
    return torch.cat([y[:, None].expand(-1, width, -1), x[None].expand(height, -1, -1)], -1).flatten(0, 1)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Pairs of channels turned by their angles, (batch, heads, tokens, HEAD)."""
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    """Self-attention and a feed-forward layer, each modulated."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries, self.keys_values = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Parameter(torch.zeros(6, width))  # of its own, beside what all blocks have

    def forward(self, x: Tensor, modulation: Tensor, rotation: Tensor, rows: Tensor | None) -> Tensor:
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = (modulation + self.modulation).unsqueeze(2).unbind(1)
        x = x + gate_1 * self.attention(normalised(x) * (1 + scale_1) + shift_1, rotation, rows)
        return x + gate_2 * self.feed_forward(normalised(x) * (1 + scale_2) + shift_2)

    def attention(self, x: Tensor, rotation: Tensor, rows: Tensor | None) -> Tensor:
        """Every token attends to all, or to the rows that are kept."""
        kept, places = (x, rotation) if rows is None else (x[:, rows], rotation[rows])
        k, v = self.keys_values(kept).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in (self.queries(x), k, v))
        q, k = rotated(normalised(q), rotation), rotated(normalised(k), places)
        return self.out(F.scaled_dot_product_attention(q.to(v), k.to(v), v).transpose(1, 2).flatten(2))


def normalised(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


class Transformer(nn.Module):
    """Velocity of latents (batch, 4, height, width) at times from 0 (latents) to 1 (noise), by labels; 0 is none."""

    def __init__(self, labels: int, width: int = 384, layers: int = 12) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(4, width), nn.Linear(width, 4)
        self.label = nn.Embedding(labels + 1, width)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.modulate = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))
        self.last = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        for layer in (self.modulate, self.last, self.leave):  # it begins as nothing but its skips
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)

    def forward(self, z: Tensor, t: Tensor, labels: Tensor, rows: Rows | None = None) -> Tensor:
        grid = (z.shape[-2], z.shape[-1])
        angles = waves(1000 * t, 256, 10_000.0)
        condition = self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.label(labels)
        modulation, rotation = self.modulate(condition).unflatten(-1, (6, -1)), rotation_of(grid, z.device)
        x = self.enter(z.flatten(2).mT)  # (batch, tokens, width)
        for i, block in enumerate(self.blocks):
            x = block(x, modulation, rotation, None if rows is None else rows(i, grid))
        shift, scale = self.last(condition)[:, None].chunk(2, -1)
        return self.leave(normalised(x) * (1 + scale) + shift).mT.unflatten(-1, grid)
