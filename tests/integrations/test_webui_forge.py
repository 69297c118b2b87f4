"""The extension in Forge beside the patches of others."""

from typing import Any

import torch
from comfy_host import watched
from webui_world import ForgeUI

from todome import Downsample

FINE, KEPT = 64, 16


def first_call(forge: ForgeUI) -> tuple[int, int]:
    """How many queries and keys the first layer has in one step of factor 2."""
    forge.set(factor=2.0)
    with watched(forge.objects.unet) as calls:
        forge.processing.process_images(forge.generation(steps=1))
    return calls[0]


def test_tokens_that_others_have_merged_are_left_alone_and_the_log_says_so(forge: ForgeUI, capsys: Any):
    forge.objects.unet.set_model_attn1_patch(lambda q, k, v, options: (q[:, ::2], k[:, ::2], v[:, ::2]))
    forge.objects.unet.set_model_attn1_output_patch(lambda n, options: n.repeat_interleave(2, 1))
    assert first_call(forge) == (FINE // 2, FINE // 2)
    assert "todome: first pass: nothing was reduced. HyperTile, token merging or" in capsys.readouterr().out


def test_queries_that_others_have_merged_get_fewer_keys_all_the_same(forge: ForgeUI):
    """As Forge's own token merging does it, which changes the queries alone."""
    forge.objects.unet.set_model_attn1_patch(lambda q, k, v, options: (q[:, ::2], k, v))
    forge.objects.unet.set_model_attn1_output_patch(lambda n, options: n.repeat_interleave(2, 1))
    assert first_call(forge) == (FINE // 2, KEPT)


def test_settings_that_others_clone_follow_the_sampler_too(forge: ForgeUI):
    from todome_webui.forge import ReducedModel

    reduced = ReducedModel(forge.shared.sd_model, Downsample(2, stop=0.5))
    forge.objects.unet = forge.objects.unet.clone()
    (copied,) = forge.objects.unet.model_options["transformer_options"]["patches"]["attn1_patch"]
    assert copied.__self__.clock.part is not None
    forge.shared.sd_model.apply_model(torch.zeros(1, 4, 8, 8), 1.0)
    reduced.at(3, 4)
    assert copied.__self__.clock.part is None
    assert [level.grids for level in reduced.remove()] == [{(8, 8): KEPT}]
