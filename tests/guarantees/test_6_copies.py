"""Guarantee 6: models are copied and saved as ever."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import ModelMixin
from promises import BLOCKS, assert_copy_stands_alone, hook_tables, over, over_blocks, pickled
from zoo import Host, reduced_everywhere

import todome
from todome import Downsample, Merge


def saved(target: Any) -> Any:
    file = io.BytesIO()
    torch.save(target, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    ("copied", "kind"),
    [
        (copy.deepcopy, Downsample),
        (pickled, Merge),
        pytest.param(copy.deepcopy, Merge, marks=pytest.mark.thorough),
        pytest.param(saved, Merge, marks=pytest.mark.thorough),
        pytest.param(pickled, Downsample, marks=pytest.mark.thorough),
        pytest.param(saved, Downsample, marks=pytest.mark.thorough),
    ],
)
@over_blocks
def test_a_copy_stays_reduced_and_stands_alone(host: Host, kind: type, copied: Callable[[Any], Any]):
    assert_copy_stands_alone(host, host.build(), reduced_everywhere(kind, host), copied)


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
