"""What is measured: the call that a pipeline itself makes, and UNets in known shapes."""

import pytest
import torch
from zoo import small_unet, talking, tiny_pipeline

from todome.tools.measuring import subjects
from todome.tools.measuring.subjects import ARCHITECTURES, denoiser_call


def test_the_call_is_the_one_the_pipeline_makes():
    pipe = talking(tiny_pipeline(unet=small_unet()))
    call = denoiser_call(pipe, (48, 32), pictures=3)
    (sample, timestep), text = call.args, call.kwargs["encoder_hidden_states"]
    assert sample.shape == (6, 4, 16, 24)  # twice the pictures, for guidance
    assert text.shape[0] == 6
    assert timestep == pipe.scheduler.timesteps[0]
    assert call()[0].shape == sample.shape
    assert not pipe.unet._forward_pre_hooks


def test_convolutions_over_pictures_alone_lie_in_the_layout_that_gpus_like():
    """SVD also convolves over time, which has no such layout: `Module.to` would refuse it."""
    over_pictures, over_time = torch.nn.Conv2d(4, 8, 3), torch.nn.Conv3d(4, 8, 3)
    picture, clip = torch.randn(1, 4, 8, 8), torch.randn(1, 4, 8, 8, 8)
    before = over_pictures(picture), over_time(clip)
    subjects.use_channels_last(torch.nn.ModuleList([over_pictures, over_time]))
    assert over_pictures.weight.is_contiguous(memory_format=torch.channels_last)
    assert over_time.weight.is_contiguous()
    torch.testing.assert_close((over_pictures(picture), over_time(clip)), before)


MILLIONS = {"sd15": 859.5, "sd21": 865.9, "sdxl": 2567.5, "animatediff": 1312.7, "svd": 1524.6}
OTHERS = [pytest.param(name, marks=pytest.mark.thorough) for name in MILLIONS if name != "sd15"]


@pytest.mark.parametrize("name", ["sd15", *OTHERS])
def test_architectures_have_the_size_of_the_originals_and_take_their_inputs(name):
    """On the meta device: shapes are checked, and nothing is computed."""
    with torch.device("meta"):
        unet = subjects.random_unet(ARCHITECTURES[name], torch.device("meta"), torch.float16)
        call = denoiser_call(unet, (512, 768))
        frames = {"animatediff": (4, 16), "svd": (25, 4)}.get(name, (4,))
        assert call().sample.shape == (2, *frames, 96, 64)
    assert round(sum(p.numel() for p in unet.parameters()) / 1e6, 1) == MILLIONS[name]


def test_what_cannot_be_called_alone_is_refused():
    with pytest.raises(ValueError, match="Pass the pipeline that calls it"):
        denoiser_call(torch.nn.Linear(2, 2), (64, 64))
