"""A tiny model with sgm's signature: tokens in front of the queries, and frames that share their keys."""

import torch
from torch import nn
from torch.nn import functional as F

from .models import WIDTH


class CrossAttention(nn.Module):
    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context_width, width, bias=False)
        self.to_v = nn.Linear(context_width, width, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(self, x, context=None, mask=None, additional_tokens=None, n_times_crossframe_attn_in_self=0):
        extra = 0 if additional_tokens is None else additional_tokens.shape[1]
        x = x if additional_tokens is None else torch.cat([additional_tokens, x], 1)
        context = x if context is None else context
        query, key, value = self.to_q(x), self.to_k(context), self.to_v(context)
        if n_times_crossframe_attn_in_self:  # every frame attends to the first one of its group
            key, value = (t[::n_times_crossframe_attn_in_self] for t in (key, value))
            key, value = (t.repeat_interleave(len(x) // len(t), 0) for t in (key, value))
        return self.to_out(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))[:, extra:]


class BasicTransformerBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn1, self.attn2 = CrossAttention(width, width), CrossAttention(width, WIDTH)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.ff = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x, context=None, additional_tokens=None, n_times_crossframe_attn_in_self=0):
        own = {"n_times_crossframe_attn_in_self": n_times_crossframe_attn_in_self}
        x = self.attn1(self.norm1(x), context=None, additional_tokens=additional_tokens, **own) + x
        x = self.attn2(self.norm2(x), context=context, additional_tokens=additional_tokens) + x
        return self.ff(self.norm3(x)) + x


class SpatialTransformer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.transformer_blocks = nn.ModuleList([BasicTransformerBlock(width)])

    def forward(self, x, context=None, **more):
        tokens = x.flatten(2).mT  # (batch, tokens, channels)
        for block in self.transformer_blocks:
            tokens = block(tokens, context=context, **more)
        return tokens.mT.reshape(x.shape) + x


class Downsample(nn.Conv2d):
    def forward(self, x, *_, **__):
        return super().forward(x)


class Upsample(nn.Conv2d):
    def forward(self, x, *_, **__):
        return super().forward(F.interpolate(x, scale_factor=2.0))


class SgmUNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        halve, double = Downsample(width, width, 3, 2, 1), Upsample(width, width, 3, 1, 1)
        self.entry, self.exit = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.input_blocks = nn.ModuleList([SpatialTransformer(width), halve])
        self.middle_block = SpatialTransformer(width)
        self.output_blocks = nn.ModuleList([double, SpatialTransformer(width)])

    def forward(self, x, timesteps, context=None, **more):
        x = self.entry(x) + (timesteps.view(-1, 1, 1, 1) / 1000).to(x.dtype)
        for stage in (*self.input_blocks, self.middle_block, *self.output_blocks):
            x = stage(x, context, **more)
        return self.exit(x)
