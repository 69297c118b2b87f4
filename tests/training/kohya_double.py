"""Doubles of sd-scripts' two UNets: its names of classes and arguments, its ways of checkpointing, tiny weights.

SD 1.x computes whole holders again, with the newer kind of checkpointing. SDXL computes the inside of every block
again, with the reentrant kind.
"""

from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, CHANNELS = 16, 8  # of a word, and of every layer
SWITCH = "gradient_checkpointing"


class CrossAttention(nn.Module):
    def __init__(self, context: int = CHANNELS) -> None:
        super().__init__()
        self.to_q = nn.Linear(CHANNELS, CHANNELS, bias=False)
        self.to_k, self.to_v = (nn.Linear(context, CHANNELS, bias=False) for _ in range(2))
        self.to_out = nn.ModuleList([nn.Linear(CHANNELS, CHANNELS)])

    def forward(self, hidden_states: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        context = hidden_states if context is None else context
        q, k, v = (
            layer(x).unflatten(-1, (2, -1)).transpose(1, 2)  # two heads
            for layer, x in ((self.to_q, hidden_states), (self.to_k, context), (self.to_v, context))
        )
        return self.to_out[0](F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class BasicTransformerBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn1, self.attn2, self.ff = CrossAttention(), CrossAttention(WIDTH), nn.Linear(CHANNELS, CHANNELS)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(CHANNELS) for _ in range(3))

    def forward(self, hidden_states: Tensor, context: Any = None, timestep: Any = None) -> Tensor:
        hidden_states = self.attn1(self.norm1(hidden_states)) + hidden_states
        hidden_states = self.attn2(self.norm2(hidden_states), context=context) + hidden_states
        return self.ff(self.norm3(hidden_states)) + hidden_states


class SdxlBlock(BasicTransformerBlock):
    """SDXL's own class of that name, which checkpoints inside of itself."""

    gradient_checkpointing = False

    def forward(self, hidden_states: Tensor, context: Any = None, timestep: Any = None) -> Any:
        if self.training and self.gradient_checkpointing:
            return checkpoint(super().forward, hidden_states, context, timestep, use_reentrant=True)
        return super().forward(hidden_states, context, timestep)


class Transformer2DModel(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.proj_in, self.transformer_blocks = nn.Linear(CHANNELS, CHANNELS), nn.ModuleList(blocks)

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Any = None, timestep: Any = None) -> Tensor:
        x = self.proj_in(hidden_states.flatten(2).transpose(1, 2))  # (batch, tokens, channels)
        for block in self.transformer_blocks:
            x = block(x, context=encoder_hidden_states, timestep=timestep)
        return hidden_states + x.transpose(1, 2).unflatten(-1, hidden_states.shape[-2:])


class Downsample2D(nn.AvgPool2d):
    def __init__(self) -> None:
        super().__init__(2, ceil_mode=True)


class Upsample2D(nn.Module):
    def forward(self, hidden_states: Tensor, output_size: Any = None) -> Tensor:
        return F.interpolate(hidden_states, output_size, None if output_size else 2.0)


class Stage(nn.Module):
    """What the stages of the UNet of SD 1.x have in common: they compute whole holders again."""

    gradient_checkpointing = False

    def __init__(self, resize: nn.Module | None = None) -> None:
        super().__init__()
        self.attentions = nn.ModuleList([Transformer2DModel(BasicTransformerBlock())])
        self.resize: Any = resize

    def forward(self, hidden_states: Any, encoder_hidden_states: Tensor) -> Any:
        if self.training and self.gradient_checkpointing:
            return checkpoint(self.attentions[0], hidden_states, encoder_hidden_states, use_reentrant=False)
        return self.attentions[0](hidden_states, encoder_hidden_states=encoder_hidden_states)


class Switched(nn.Module):
    def enable_gradient_checkpointing(self) -> None:
        for module in self.modules():
            if hasattr(module, SWITCH):
                setattr(module, SWITCH, True)


class UNet2DConditionModel(Switched):
    """SD 1.x: attention from the finest grid on, and latents of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in, self.conv_out = nn.Conv2d(4, CHANNELS, 1), nn.Conv2d(CHANNELS, 4, 1)
        self.down_blocks, self.mid_block = nn.ModuleList([Stage(Downsample2D())]), Stage()
        self.up_blocks = nn.ModuleList([Stage(Upsample2D()), Stage()])

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Any:
        stages: list[Any] = [*self.down_blocks, self.mid_block, *self.up_blocks]
        down, middle, up, last = stages
        fine = down(self.conv_in(sample), encoder_hidden_states)
        coarse = up(middle(down.resize(fine), encoder_hidden_states), encoder_hidden_states)
        sample = last(up.resize(coarse, fine.shape[-2:]) + fine, encoder_hidden_states)
        return SimpleNamespace(sample=self.conv_out(sample))


class SdxlUNet2DConditionModel(Switched):
    """SDXL: no attention at the finest grid, several blocks in a row at the next ones."""

    def __init__(self) -> None:
        super().__init__()

        def attention(blocks: int = 1) -> nn.Module:
            return Transformer2DModel(*(SdxlBlock() for _ in range(blocks)))

        def in_lists(*blocks: list[nn.Module]) -> nn.ModuleList:
            return nn.ModuleList(map(nn.ModuleList, blocks))

        first, last = nn.Conv2d(4, CHANNELS, 1), nn.Conv2d(CHANNELS, 4, 1)
        self.input_blocks = in_lists([first], [Downsample2D()], [attention(2)], [Downsample2D()], [attention()])
        self.middle_block, self.out = nn.ModuleList([attention()]), nn.ModuleList([last])
        self.output_blocks = in_lists([attention(), Upsample2D()], [attention(), Upsample2D()])

    def forward(self, x: Tensor, timesteps: Tensor, context: Tensor, y: Tensor) -> Tensor:
        blocks = (*self.input_blocks, self.middle_block, *self.output_blocks, self.out)
        for layer in (layer for block in blocks for layer in block.children()):
            x = layer(x, context) if isinstance(layer, Transformer2DModel) else layer(x)
        return x
