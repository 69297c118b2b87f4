"""Guarantee 3, further: attention whose processor does more than attention keeps doing it."""

import sys
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionSAGPipeline, TextToVideoZeroPipeline
from diffusers.models.attention_processor import AttnProcessor
from torch import Tensor
from zoo import host_named, image_keys, noise, run, small_unet, text, unet_inputs

import todome
from todome import Downsample

FRAMES = 4


def beside(pipeline: type, name: str) -> Any:
    """What is in the module of a pipeline, which moves from version to version."""
    return getattr(sys.modules[pipeline.__module__], name)


CrossFrameAttnProcessor2_0 = beside(TextToVideoZeroPipeline, "CrossFrameAttnProcessor2_0")
CrossAttnStoreProcessor = beside(StableDiffusionSAGPipeline, "CrossAttnStoreProcessor")


def change_of_another_frame(unet: Any) -> float:
    """How much the second frame of a video changes when the first one does."""
    sample = noise(FRAMES, 4, 16, 16)
    other = sample.clone()
    other[0] += 1
    drawn = [run(unet, sample=x, timestep=500, encoder_hidden_states=text(FRAMES)) for x in (sample, other)]
    return float((drawn[0] - drawn[1])[1].abs().mean())


def test_attention_across_frames_goes_on():
    unet = small_unet()
    unet.set_attn_processor(CrossFrameAttnProcessor2_0(batch_size=1))
    dense = change_of_another_frame(unet)
    with todome.apply(unet, Downsample((2, 2))) as patch:
        reduced = change_of_another_frame(unet)
        assert all(left < h * w for level in patch.levels for (h, w), left in level.grids.items())
    assert 0.5 * dense < reduced < 2 * dense


class KeepsMaps(AttnProcessor):
    """A processor of a user's own that reads the map of attention in a method of its own."""

    maps: Tensor

    def __call__(self, attn: Any, hidden_states: Tensor, *_: Any, **__: Any) -> Tensor:
        return self.attend(attn, hidden_states)

    def attend(self, attn: Any, x: Tensor) -> Tensor:
        query, key, value = (attn.head_to_batch_dim(project(x)) for project in (attn.to_q, attn.to_k, attn.to_v))
        self.maps = attn.get_attention_scores(query, key)
        return attn.to_out[0](attn.batch_to_head_dim(torch.bmm(self.maps, value)))


@pytest.mark.parametrize("make", [KeepsMaps, CrossAttnStoreProcessor])
def test_a_processor_that_reads_maps_sees_whole_ones(make):
    unet: Any = small_unet()
    own = make()
    layer = unet.mid_block.attentions[0].transformer_blocks[0].attn1
    layer.set_processor(own)
    todome.apply(unet, Downsample((2, 2)))
    run(unet, **unet_inputs())
    seen = own.maps if isinstance(own, KeepsMaps) else own.attention_probs
    assert seen.shape[-1] == seen.shape[-2]


def test_other_layers_are_reduced_beside_it():
    unet: Any = small_unet()
    unet.mid_block.attentions[0].transformer_blocks[0].attn1.set_processor(KeepsMaps())
    todome.apply(unet, Downsample((2, 2)))
    seen = image_keys(host_named("sd1"), unet)
    assert seen["mid_block.attentions.0.transformer_blocks.0.attn1"] == 72
    assert seen["down_blocks.1.attentions.0.transformer_blocks.0.attn1"] == 16
