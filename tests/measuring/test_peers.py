"""The packages of others: put on, reduced to what they do, and taken off."""

import sys

import pytest
import torch
from zoo import draw, small_unet, tiny_pipeline, unet_inputs

from todome.tools.measuring.peers import CaTome, DeepCache, Tomesd


@pytest.mark.parametrize("peer", [Tomesd(0.5), CaTome(0.0), DeepCache(2)], ids=lambda peer: type(peer).__name__)
def test_a_pipeline_draws_otherwise_and_is_left_as_it_was(peer):
    pipe = tiny_pipeline(unet=small_unet())
    before = draw(pipe, steps=4)
    with peer.on(pipe) as kinds:
        assert sum(kind.share for kind in kinds) == pytest.approx(1)
        other = draw(pipe, steps=4)
    assert not torch.equal(other, before)
    assert torch.equal(draw(pipe, steps=4), before)


def test_ca_tome_counts_the_steps_of_every_run():
    pipe = tiny_pipeline(unet=small_unet())
    block, steps = pipe.unet.down_blocks[0].attentions[0].transformer_blocks[0], []
    with CaTome(0.0).on(pipe):
        block.register_forward_pre_hook(lambda module, _: steps.append(module.inference_step))
        draw(pipe, steps=3)
        draw(pipe, steps=2)
    assert steps == [0, 1, 2, 0, 1]


def test_ca_tome_matches_anew_in_13_of_50_steps(monkeypatch):
    """On a bare UNet every call of the first kind matches, and none of the second."""
    unet, matched = small_unet(), []
    sort = torch.Tensor.argsort
    with CaTome(0.0).on(unet) as (anew, cached), torch.no_grad():
        monkeypatch.setattr(torch.Tensor, "argsort", lambda *a, **k: matched.append(1) or sort(*a, **k))
        counts = []
        for kind in (anew, anew, cached, cached):
            kind.begin()
            unet(*unet_inputs().values())
            counts.append(len(matched))
    assert counts == [6, 12, 12, 12]  # twice in each of three layers
    assert anew.share == 13 / 50
    assert cached.share == 37 / 50


def test_deepcache_skips_the_deep_part_of_a_bare_unet():
    unet, calls = small_unet(), []
    unet.mid_block.resnets[0].register_forward_hook(lambda *_: calls.append(1))
    with DeepCache(3).on(unet) as (full, cached), torch.no_grad():
        counts = []
        for kind in (full, cached, cached, full):
            kind.begin()
            unet(*unet_inputs().values())
            counts.append(len(calls))
    assert counts == [1, 1, 1, 2]
    assert full.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("peer", "module"), [(Tomesd(), "tomesd"), (CaTome(), "ca_tome.patch"), (DeepCache(), "DeepCache")]
)
def test_a_package_that_is_missing(monkeypatch, peer, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"needs {module}, which is missing. Install it: pip install "):
        peer.on(small_unet()).__enter__()


def test_models_that_the_others_do_not_know():
    with (
        pytest.raises(ValueError, match="Measure it with dense, todome, todo and tome"),
        Tomesd().on(torch.nn.Identity()),
    ):
        pass
