"""Doubles of sd-scripts' two UNets: its names of classes and arguments, its ways of checkpointing, tiny weights.

SD 1.x computes whole holders again, with the newer kind of checkpointing. SDXL computes the inside of every block
again, with the reentrant kind.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH = 16  # of a word
SWITCH = "gradient_checkpointing"


class SampleOutput:
    def __init__(self, sample: Tensor) -> None:
        self.sample = sample


class CrossAttention(nn.Module):
    def __init__(self, query_dim: int, cross_attention_dim: int | None = None, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(query_dim, query_dim, bias=False)
        self.to_k = nn.Linear(cross_attention_dim or query_dim, query_dim, bias=False)
        self.to_v = nn.Linear(cross_attention_dim or query_dim, query_dim, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(query_dim, query_dim)])

    def forward(self, hidden_states: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        context = hidden_states if context is None else context
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, x in ((self.to_q, hidden_states), (self.to_k, context), (self.to_v, context))
        )
        return self.to_out[0](F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class BasicTransformerBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attn1, self.attn2 = CrossAttention(dim), CrossAttention(dim, WIDTH)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, hidden_states: Tensor, context: Any = None, timestep: Any = None) -> Tensor:
        hidden_states = self.attn1(self.norm1(hidden_states)) + hidden_states
        hidden_states = self.attn2(self.norm2(hidden_states), context=context) + hidden_states
        return self.ff(self.norm3(hidden_states)) + hidden_states


class SdxlBlock(BasicTransformerBlock):
    """SDXL's own class of that name, which checkpoints inside of itself."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.gradient_checkpointing = False

    def forward_body(self, hidden_states: Tensor, context: Any = None, timestep: Any = None) -> Tensor:
        return super().forward(hidden_states, context, timestep)

    def forward(self, hidden_states: Tensor, context: Any = None, timestep: Any = None) -> Any:
        if self.training and self.gradient_checkpointing:
            return checkpoint(self.forward_body, hidden_states, context, timestep, use_reentrant=True)
        return self.forward_body(hidden_states, context, timestep)


class Transformer2DModel(nn.Module):
    def __init__(self, in_channels: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, in_channels)
        self.proj_in, self.proj_out = nn.Linear(in_channels, in_channels), nn.Linear(in_channels, in_channels)
        self.transformer_blocks = nn.ModuleList(blocks)

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Any = None, timestep: Any = None) -> Tensor:
        x = self.proj_in(self.norm(hidden_states).flatten(2).transpose(1, 2))  # (batch, tokens, channels)
        for block in self.transformer_blocks:
            x = block(x, context=encoder_hidden_states, timestep=timestep)
        return hidden_states + self.proj_out(x).transpose(1, 2).unflatten(-1, hidden_states.shape[-2:])


class Downsample2D(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.op = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.op(hidden_states)


class Upsample2D(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, hidden_states: Tensor, output_size: Any = None) -> Tensor:
        factor = 2.0 if output_size is None else None
        return self.conv(F.interpolate(hidden_states, size=output_size, scale_factor=factor))


class Stage(nn.Module):
    """What the stages of the UNet of SD 1.x have in common: they compute whole holders again."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList([Transformer2DModel(channels, [BasicTransformerBlock(channels)])])
        self.gradient_checkpointing = False

    def attend(self, hidden_states: Any, encoder_hidden_states: Tensor) -> Tensor:
        for attention in self.attentions:
            if self.training and self.gradient_checkpointing:
                hidden_states = checkpoint(attention, hidden_states, encoder_hidden_states, use_reentrant=False)
            else:
                hidden_states = attention(hidden_states, encoder_hidden_states=encoder_hidden_states)
        return hidden_states


class CrossAttnDownBlock2D(Stage):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.downsamplers = nn.ModuleList([Downsample2D(channels)])

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        hidden_states = self.attend(hidden_states, encoder_hidden_states)
        return self.downsamplers[0](hidden_states), hidden_states


class UNetMidBlock2DCrossAttn(Stage):
    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        return self.attend(hidden_states, encoder_hidden_states)


class CrossAttnUpBlock2D(Stage):
    def __init__(self, channels: int, add_upsample: bool) -> None:
        super().__init__(channels)
        self.upsamplers = nn.ModuleList([Upsample2D(channels)]) if add_upsample else None

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor, upsample_size: Any = None) -> Tensor:
        hidden_states = self.attend(hidden_states, encoder_hidden_states)
        return hidden_states if self.upsamplers is None else self.upsamplers[0](hidden_states, upsample_size)


class UNet2DConditionModel(nn.Module):
    """SD 1.x: attention from the finest grid on, and latents of any size."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv_in, self.conv_out = nn.Conv2d(4, channels, 3, padding=1), nn.Conv2d(channels, 4, 3, padding=1)
        self.time_embedding = nn.Embedding(1000, channels)
        self.down_blocks = nn.ModuleList([CrossAttnDownBlock2D(channels)])
        self.mid_block = UNetMidBlock2DCrossAttn(channels)
        self.up_blocks = nn.ModuleList([CrossAttnUpBlock2D(channels, True), CrossAttnUpBlock2D(channels, False)])

    def enable_gradient_checkpointing(self) -> None:
        checkpoint_all(self)

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> SampleOutput:
        sample = self.conv_in(sample) + self.time_embedding(timestep)[:, :, None, None]
        sample, fine = self.down_blocks[0](sample, encoder_hidden_states=encoder_hidden_states)
        sample = self.mid_block(sample, encoder_hidden_states=encoder_hidden_states)
        sample = self.up_blocks[0](sample, encoder_hidden_states, upsample_size=fine.shape[-2:])
        sample = self.up_blocks[1](sample + fine, encoder_hidden_states)
        return SampleOutput(self.conv_out(sample))


def checkpoint_all(model: nn.Module) -> None:
    for module in model.modules():
        if hasattr(module, SWITCH):
            setattr(module, SWITCH, True)


class SdxlUNet2DConditionModel(nn.Module):
    """SDXL: no attention at the finest grid, several blocks in a row at the next ones."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()

        def attention(blocks: int) -> nn.Module:
            return Transformer2DModel(channels, [SdxlBlock(channels) for _ in range(blocks)])

        self.time_embed = nn.Embedding(1000, channels)
        self.label_emb = nn.Linear(6, channels)
        self.input_blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(4, channels, 3, padding=1)),
                nn.Sequential(Downsample2D(channels)),
                nn.ModuleList([attention(2)]),
                nn.Sequential(Downsample2D(channels)),
                nn.ModuleList([attention(1)]),
            ]
        )
        self.middle_block = nn.ModuleList([attention(1)])
        self.output_blocks = nn.ModuleList(
            [
                nn.ModuleList([attention(1), Upsample2D(channels)]),
                nn.ModuleList([attention(1), Upsample2D(channels)]),
                nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1)]),
            ]
        )
        self.out = nn.ModuleList([nn.Conv2d(channels, 4, 3, padding=1)])

    def enable_gradient_checkpointing(self) -> None:
        checkpoint_all(self)

    def forward(self, x: Tensor, timesteps: Tensor, context: Tensor, y: Tensor) -> Tensor:
        x = self.input_blocks[0](x) + (self.time_embed(timesteps) + self.label_emb(y))[:, :, None, None]
        for block in (*self.input_blocks[1:], self.middle_block, *self.output_blocks, self.out):
            for layer in block:  # pyright: ignore[reportGeneralTypeIssues]
                x = layer(x, context) if isinstance(layer, Transformer2DModel) else layer(x)
        return x
