"""Guarantee 6: models are copied and saved as ever."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import ModelMixin
from promises import BLOCKS, among, both, hook_tables, over, over_blocks
from zoo import Host, picture, reduced_everywhere

import todome
from todome import Downsample, Merge


def pickled(target: Any) -> Any:
    return pickle.loads(pickle.dumps(target))


def saved(target: Any) -> Any:
    import io

    file = io.BytesIO()
    torch.save(target, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def assert_copy_stands_alone(host: Host, kind: type, copied: Callable[[Any], Any]) -> None:
    target = host.build()
    dense = host.run(target)
    patch = todome.apply(target, reduced_everywhere(kind, host))
    patch.at(3, 10)
    expected = host.run(target)
    twin = copied(target)
    patch.at(4, 10)  # the copy's clock is its own
    assert torch.equal(host.run(twin), expected)
    patch.at(3, 10)
    todome.remove(twin)
    assert torch.equal(host.run(twin), dense)
    assert not any(hooks for _, hooks in hook_tables(twin))
    assert torch.equal(host.run(target), expected)


@pytest.mark.parametrize(("copied", "kind"), [(copy.deepcopy, Downsample), (pickled, Merge)])
@over_blocks
def test_a_copy_stays_reduced_and_stands_alone(host: Host, kind: type, copied: Callable[[Any], Any]):
    assert_copy_stands_alone(host, kind, copied)


@among("sd1", "svd", "ldm1-wrapped")
def test_copies_the_other_way_around(host: Host):
    """As for `pickled`, torch.save below takes the same way with both kinds."""
    assert_copy_stands_alone(host, Merge, copy.deepcopy)


@both
@among("sd1", "svd", "ldm1-wrapped", "sgm")
def test_torch_save_keeps_the_reduction(host: Host, kind: type):
    assert_copy_stands_alone(host, kind, saved)


@over_blocks
def test_removing_from_the_original_leaves_the_copy(host: Host):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(Downsample, host))
    patch.at(3, 10)
    expected = host.run(target)
    twin = copy.deepcopy(target)
    patch.remove()
    assert torch.equal(host.run(twin), expected)
    todome.apply(twin, reduced_everywhere(Downsample, host)).at(3, 10)  # a copy's patch can be replaced like any other
    assert torch.equal(host.run(twin), expected)


FROM_DIFFUSERS = [host for host in BLOCKS if isinstance(host.build(), ModelMixin)]


@over(FROM_DIFFUSERS)
def test_save_pretrained_saves_the_dense_model(host: Host, tmp_path: Any):
    model = host.build()
    dense = host.run(model)
    with todome.apply(model, reduced_everywhere(Downsample, host)):
        host.run(model)
        model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    torch.testing.assert_close(host.run(loaded), dense)  # the weights lie elsewhere in memory, so kernels may round
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert not any(hooks for _, hooks in hook_tables(loaded))


def test_a_pipeline_copies_and_saves(pipe: Any, tmp_path: Any):
    dense = picture(pipe)
    todome.apply(pipe, Downsample(factor=2))
    expected = picture(pipe)
    twin = copy.deepcopy(pipe)
    assert torch.equal(picture(twin), expected)
    todome.remove(twin)
    assert torch.equal(picture(twin), dense)
    assert torch.equal(picture(pipe), expected)
    pipe.unet.save_pretrained(tmp_path)
    pipe.unet = type(pipe.unet).from_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="is no longer in this"):
        assert torch.equal(picture(pipe), dense)
