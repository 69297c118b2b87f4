"""Guarantee 5 on every torch: where a model is compiled in pieces, it draws what it draws without compiling."""

from typing import Any

import pytest
import torch
from torch._dynamo.exc import Unsupported
from zoo import mini_unet, run, unet_inputs

import todome
from todome import Downsample, Merge
from todome.hooks.compiling import HOOKS_IN_GRAPHS

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), pytest.mark.thorough]


@pytest.mark.parametrize("reduction", [Downsample(factor=2, stop=0.5), Merge()], ids=["window", "merge"])
def test_a_compiled_run_is_the_eager_one(reduction: Any):
    model, plain = mini_unet(), mini_unet()
    patch, other = todome.apply(model, reduction), todome.apply(plain, reduction)
    compiled: Any = torch.compile(model, backend="eager")
    for step in range(4):
        patch.at(step, 4)
        other.at(step, 4)
        torch.testing.assert_close(run(compiled, **unet_inputs()), run(plain, **unet_inputs()), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(HOOKS_IN_GRAPHS, reason="from torch 2.4 on it is one graph")
def test_a_whole_graph_is_refused():
    model = mini_unet()
    todome.apply(model, Downsample(factor=2))
    with pytest.raises(Unsupported, match="before"):
        run(torch.compile(model, fullgraph=True, backend="eager"), **unet_inputs())
