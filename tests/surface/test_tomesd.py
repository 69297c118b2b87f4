"""The drop-in: code written for tomesd 0.1.3 runs with `import todome as tomesd` and gives tomesd's output."""

import inspect
import itertools
import re
from typing import Any

import pytest
import tomesd as original
import torch
from diffusers import StableDiffusionControlNetPipeline
from torch import Tensor
from zoo import SIDE, TEXT, WIDTH, LatentDiffusion, controlnet, draw, latent_diffusion, noise, small_unet, tiny_pipeline

import todome
import todome as tomesd

DROP_IN = {"use_rand": False}


def three_levels() -> Any:
    blocks: Any = {"down_block_types": ("CrossAttnDownBlock2D",) * 3, "up_block_types": ("CrossAttnUpBlock2D",) * 3}
    return small_unet(block_out_channels=(8, 16, 16), **blocks)


@torch.no_grad()
def output_of(host: Any, size: tuple[int, int] = (16, 16), batch: int = 2, timestep: float = 5) -> Tensor:
    x, text = noise(batch, 4, *size), noise(batch, TEXT, WIDTH)
    if isinstance(host, LatentDiffusion):
        return host.model.get_submodule("diffusion_model")(x, torch.full((batch,), 5), text)
    return host(x, torch.tensor(timestep), text).sample


def outputs(host: Any, arguments: dict[str, Any], **call: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What a model gives dense, with tomesd and with todome."""
    results = [output_of(host, **call)]
    for library in (original, todome):
        library.apply_patch(host, **arguments)
        results.append(output_of(host, **call))
        library.remove_patch(host)
    dense, theirs, ours = results
    return dense, theirs, ours


def assert_drop_in(host: Any, arguments: dict[str, Any], **call: Any) -> None:
    dense, theirs, ours = outputs(host, DROP_IN | arguments, **call)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(ours, dense, atol=1e-4)


def test_the_signatures_are_tomesds():
    for name in ("apply_patch", "remove_patch"):
        ours, theirs = (inspect.signature(getattr(library, name)) for library in (todome, original))
        assert [(p.name, p.default, p.kind) for p in ours.parameters.values()] == [
            (p.name, p.default, p.kind) for p in theirs.parameters.values()
        ]


@pytest.mark.parametrize("make", [small_unet, latent_diffusion, tiny_pipeline])
def test_code_written_for_tomesd_runs(make):
    model = make()
    assert tomesd.apply_patch(model, ratio=0.5) is model
    assert tomesd.apply_patch(model, 0.4, 2, 2, 2, True, True, True, True) is model
    assert tomesd.remove_patch(model) is model
    assert tomesd.remove_patch(model) is model


@pytest.mark.parametrize("size", [(16, 16), (17, 19)], ids=str)  # level 3 of the second is 5x5
@pytest.mark.parametrize("max_downsample", [1, 2, 4])
@pytest.mark.parametrize("make", [three_levels, latent_diffusion])
def test_every_depth(make, max_downsample, size):
    if make is latent_diffusion:
        max_downsample, size = min(max_downsample, 2), (10, 14)
    assert_drop_in(make(), {"max_downsample": max_downsample}, size=size)


FLAGS = ("merge_attn", "merge_crossattn", "merge_mlp")
PARTS = [dict(zip(FLAGS, chosen, strict=True)) for chosen in itertools.product((False, True), repeat=3)]


@pytest.mark.parametrize(
    "arguments",
    [*PARTS[1:], {"sx": 3, "sy": 3}, {"sx": 4, "sy": 2, "max_downsample": 2}, {"sx": 1, "sy": 2}, {"ratio": 0.75}],
    ids=str,
)
@pytest.mark.parametrize("make", [small_unet, latent_diffusion])
def test_every_argument(make, arguments):
    assert_drop_in(make(), arguments, batch=3)


def test_a_ratio_of_zero_is_dense():
    dense, theirs, ours = outputs(small_unet(), {"ratio": 0.0})
    assert ours.equal(dense)
    assert theirs.equal(dense)


@pytest.mark.parametrize("size", [(16, 16), (17, 19)], ids=str)
@pytest.mark.parametrize(
    ("ratio", "sx", "sy", "most"), [(0.9, 2, 2, "0.75"), (0.76, 2, 2, "0.75"), (1.0, 3, 3, "0.888889")]
)
def test_a_ratio_above_the_cap_warns_and_is_capped_as_in_tomesd(ratio, sx, sy, most, size):
    text = f"ratio={ratio} is capped at {most}, the most that sx={sx}, sy={sy} allow."
    with pytest.warns(UserWarning, match=f"^{re.escape(text)}$") as caught:
        assert_drop_in(small_unet(), {"ratio": ratio, "sx": sx, "sy": sy}, size=size)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="capped") as caught:
        tomesd.apply_patch(small_unet(), ratio=ratio, sx=sx, sy=sy)
    assert caught[0].filename == __file__


def test_a_model_whose_attention_is_deeper_is_merged_at_its_first_level():
    sdxl = small_unet(
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D")
    )
    text = "max_downsample=1 reaches no self-attention of this model, whose first is at 2: its first level is merged."
    with pytest.warns(UserWarning, match=f"^{re.escape(text)}$") as caught:
        tomesd.apply_patch(sdxl, use_rand=False)
    assert [warning.filename for warning in caught] == [__file__]
    ours = output_of(sdxl)
    tomesd.remove_patch(sdxl)
    original.apply_patch(sdxl, use_rand=False, max_downsample=2)
    torch.testing.assert_close(ours, output_of(sdxl), atol=1e-5, rtol=1e-5)


def test_random_destinations_change_from_call_to_call_but_not_from_run_to_run():
    unet = small_unet()
    runs = []
    for _ in range(2):
        tomesd.apply_patch(unet)
        runs.append([output_of(unet, timestep=5 - number / 1000) for number in range(6)])
    assert all(one.equal(other) for one, other in zip(*runs, strict=True))
    assert len({tuple(result.flatten().tolist()) for result in runs[0]}) > 1


@pytest.mark.parametrize("with_controlnet", [False, True])
def test_a_pipeline_gives_tomesds_picture(with_controlnet):
    pipeline: Any = tiny_pipeline()
    hint: dict[str, Any] = {}
    if with_controlnet:
        pipeline = tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=controlnet())
        hint = {"image": noise(1, 3, 2 * SIDE, 2 * SIDE).sigmoid()}
    pictures = []
    for library in (original, todome):
        library.apply_patch(pipeline, use_rand=False)
        pictures.append(draw(pipeline, steps=4, **hint))
        library.remove_patch(pipeline)
    torch.testing.assert_close(pictures[1], pictures[0], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(draw(pipeline, steps=4, **hint), pictures[0], atol=1e-3)
