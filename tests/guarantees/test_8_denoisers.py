"""Guarantee 8 for pipelines of several models: all of them are reduced, in whatever order they are called."""

import copy
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline, StableDiffusionControlNetPipeline
from versions import part_of_diffusers
from zoo import SIDE, controlnet, ddim, draw, noise, one_level_unet, recording, small_unet, text, tiny_pipeline

import todome
from todome import Downsample


class TwoUnets(DiffusionPipeline):
    """As VersatileDiffusion: two denoisers, of which a run uses both."""

    def __init__(self, image_unet: Any, text_unet: Any, scheduler: Any) -> None:
        super().__init__()
        self.register_modules(image_unet=image_unet, text_unet=text_unet, scheduler=scheduler)

    def __call__(self, steps: int, first: str = "image_unet") -> Any:
        self.scheduler.set_timesteps(steps)
        sample = noise(1, 4, SIDE, SIDE)
        models = [self.image_unet, self.text_unet]
        for timestep in self.scheduler.timesteps:
            ordered = models if first == "image_unet" else models[::-1]
            output = sum(model(sample, timestep, text(1)).sample for model in ordered) / 2
            sample = self.scheduler.step(output, timestep, sample).prev_sample
        return sample


@pytest.mark.parametrize("first", ["image_unet", "text_unet"])
def test_both_unets_of_a_pipeline_are_reduced_in_step(first: str):
    pipeline = TwoUnets(one_level_unet(), one_level_unet(), ddim())
    patch = todome.apply(pipeline, Downsample(2, stop=0.5))
    records = []
    with recording(pipeline.image_unet, patch) as one, recording(pipeline.text_unet, patch) as other:
        pipeline(6, first)
        pipeline.scheduler = ddim()  # swapped: whoever is called first must notice
        pipeline(4, first)
        records = [one, other]
    for record in records:
        assert record.phases == [*range(6), *range(4)]
        assert record.reduced == [True] * 3 + [False] * 3 + [True] * 2 + [False] * 2
    patch.remove()
    assert not any(list(model.named_buffers()) for model in (pipeline.image_unet, pipeline.text_unet))


def control_pipeline(nets: Any) -> Any:
    return tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=nets)


@pytest.mark.parametrize("count", [1, 2])
def test_controlnets_are_reduced_also_several(count: int):
    nets: Any = [controlnet() for _ in range(count)]
    pipeline = control_pipeline(part_of_diffusers("MultiControlNetModel")(nets) if count > 1 else nets[0])
    patch = todome.apply(pipeline, Downsample(2))
    image = torch.linspace(0, 1, 3 * 16 * 16).view(1, 3, 16, 16)
    with recording(nets[-1], patch) as control, recording(pipeline.unet, patch) as unet:
        draw(pipeline, steps=4, image=image if count == 1 else [image] * count)
    assert control.phases == unet.phases == [0, 1, 2, 3]
    assert all(control.reduced)


def test_a_plain_list_of_controlnets_is_reduced():
    class Lists(TwoUnets):
        @property
        def components(self) -> dict[str, Any]:
            return {**super().components, "controlnets": self.nets}

    pipeline = Lists(one_level_unet(), one_level_unet(), ddim())
    pipeline.nets = [controlnet(), controlnet()]
    patch = todome.apply(pipeline, Downsample(2))
    assert len(patch.models) == 4


def test_replacing_a_model_after_apply_is_said():
    pipeline = tiny_pipeline()
    patch = todome.apply(pipeline, Downsample(2))
    pipeline.unet = one_level_unet()
    text = r"The UNet2DConditionModel that todome\.apply patched is no longer in this StableDiffusionPipeline.*again\."
    with pytest.warns(UserWarning, match=text):
        draw(pipeline, steps=2)
    patch.remove()


def test_wrapping_a_model_after_apply_is_fine():
    pipeline = tiny_pipeline()
    todome.apply(pipeline, Downsample(2))
    expected = draw(pipeline, steps=2)
    pipeline.unet = torch.compile(pipeline.unet, backend="eager", disable=True)
    assert torch.equal(draw(pipeline, steps=2), expected)


def test_a_modular_pipeline_is_taken_like_a_pipeline():
    pipeline = part_of_diffusers("StableDiffusionXLModularPipeline", oldest=(0, 36))()
    pipeline.update_components(unet=small_unet(), scheduler=ddim())
    patch = todome.apply(pipeline, Downsample(2, stop=0.5))
    assert patch.models == [pipeline.unet]
    pipeline.scheduler.set_timesteps(4)
    with torch.no_grad(), recording(pipeline.unet, patch) as record:
        for timestep in pipeline.scheduler.timesteps:
            for prompt in (text(1), text(1) * 0):  # as guiders do
                output = pipeline.unet(noise(1, 4, SIDE, SIDE), timestep, prompt).sample
            pipeline.scheduler.step(output, timestep, output)
    assert record.phases == [0, 0, 1, 1, 2, 2, 3, 3]
    assert record.reduced == [True] * 4 + [False] * 4
    patch.remove()


def test_a_patch_on_one_of_two_models_leaves_the_other_ones():
    pipeline = TwoUnets(one_level_unet(), one_level_unet(), ddim())
    both = todome.apply(pipeline, Downsample(2))
    one = todome.apply(pipeline.image_unet, Downsample(3))
    with recording(pipeline.text_unet, both) as record:
        pipeline(4)
    assert record.phases == [0, 1, 2, 3]
    one.remove()
    both.remove()
    assert not {"step", "set_timesteps"} & vars(pipeline.scheduler).keys()


def test_a_copied_pipeline_of_two_models_drives_its_own():
    pipeline = TwoUnets(one_level_unet(), one_level_unet(), ddim())
    todome.apply(pipeline, Downsample(2, stop=0.5))
    expected = pipeline(4)
    twin = copy.deepcopy(pipeline)
    assert torch.equal(twin(4), expected)
    todome.remove(twin)
    assert not torch.equal(twin(4), expected)
    assert torch.equal(pipeline(4), expected)
