"""Reuse over steps beside what others do to a model, or call it with: the picture is the one that is drawn by hand."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from DeepCache import DeepCacheSDHelper
from diffusers import (
    EulerDiscreteScheduler,
    LCMScheduler,
    StableDiffusionAdapterPipeline,
    StableDiffusionControlNetPipeline,
    StableDiffusionGLIGENPipeline,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionSAGPipeline,
    T2IAdapter,
)
from diffusers.models.attention_processor import AttnProcessor2_0
from drawn_by_hand import Kind, close, from_alphas, from_sigmas, word_of
from ldm.modules.diffusionmodules.openaimodel import UNetModel, timestep_embedding
from peft import LoraConfig
from tiny_pipelines import draw, picture
from torch import Tensor, nn
from versions import part_of_diffusers
from zoo import TEXT, WIDTH, ddim, is_image_attention, ldm_unet, lively, noise, talking, text, tiny_pipeline
from zoo.models import SMALL, unet
from zoo.sgm import SgmUNet

import todome
from todome import Downsample, Reuse

HAND = Reuse(every=2, warmup=0.3, stages=1)
WORD = "FFFsFsFsFF"


def check(kind: Kind, word: str = WORD, lever: Reuse = HAND, **options: Any) -> None:
    pipe = kind.build()
    patch = todome.apply(pipe, lever) if hasattr(pipe, "components") else followed(pipe, lever)
    found = kind.draw(pipe, **options)
    assert word_of(patch) == word
    close(found, kind.by_hand(word, **options))
    patch.remove()
    assert not torch.allclose(kind.draw(pipe, **options), found, rtol=1e-4)


def followed(loop: Any, *levers: Any) -> todome.Patch:
    return todome.apply(loop.unet, *levers, scheduler=loop.scheduler)


# ControlNets and adapters


@pytest.fixture
def control() -> Any:
    from diffusers import ControlNetModel

    down = ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D")
    sizes: Any = {"block_out_channels": (8, 8, 16, 16), "conditioning_embedding_out_channels": (8, 8)}
    return lively(lambda: ControlNetModel(**SMALL, **sizes, down_block_types=down, attention_head_dim=2))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("options", [{}, {"guess_mode": True}, {"control_guidance_end": 0.5}], ids=str)
def test_controlnets(control: Any, count: int, options: dict[str, Any]):
    nets = control if count == 1 else part_of_diffusers("MultiControlNetModel")([control, control])

    def draw_controlled(pipe: Any, **more: Any) -> Tensor:
        image = picture() if count == 1 else [picture(), picture() * 0.5]
        return draw(pipe, image=image, **options, **more)

    build = partial(tiny_pipeline, unet=unet(), kind=StableDiffusionControlNetPipeline, controlnet=nets)
    check(Kind("", build, draw_controlled))


def test_a_controlnet_has_no_gate(control: Any):
    pipe = tiny_pipeline(unet=unet(), kind=StableDiffusionControlNetPipeline, controlnet=control)
    assert todome.apply(pipe, Reuse()).models == [pipe.unet]


@pytest.mark.parametrize(("lever", "word"), [(HAND, "FFFfFfFfFF"), (Reuse(every=2, guidance=False), "F" * 10)])
def test_what_an_adapter_adds_to_is_computed(lever: Reuse, word: str):
    adapter = lively(lambda: T2IAdapter(3, [8, 8, 16, 16], 1, 2))
    build = partial(tiny_pipeline, unet=unet(), kind=StableDiffusionAdapterPipeline, adapter=adapter)
    kind = Kind("", build, lambda pipe, **options: draw(pipe, image=picture(), **options))
    pipe = build()
    patch = todome.apply(pipe, lever)
    found = kind.draw(pipe)
    assert word_of(patch) == word
    close(found, kind.by_hand(word))


def with_ip_adapter(model: Any) -> None:
    cross = [name for name in model.attn_processors if "attn2" in name]
    widths = [model.get_submodule(name.removesuffix(".processor")).to_q.out_features for name in cross]
    weights = {
        f"{2 * i + 1}.to_{part}_ip.weight": noise(width, WIDTH, seed=i)
        for i, width in enumerate(widths)
        for part in "kv"
    }
    image = {"proj": nn.Linear(WIDTH, 4 * WIDTH), "norm": nn.LayerNorm(WIDTH)}
    state = lively(lambda: nn.ModuleDict(image)).state_dict()
    model._load_ip_adapter_weights({"ip_adapter": weights, "image_proj": state})


@pytest.mark.parametrize("masks", [1, 2])
def test_an_ip_adapter_with_masks(masks: int):
    def build() -> Any:
        pipe = tiny_pipeline(unet=unet())
        with torch.random.fork_rng():
            torch.manual_seed(0)
            with_ip_adapter(pipe.unet)
        return pipe

    images = noise(2, masks, 1, WIDTH)
    shown = torch.arange(masks * 256).view(1, masks, 16, 16) % 3 == 0
    own = {"ip_adapter_image_embeds": [images], "cross_attention_kwargs": {"ip_adapter_masks": [shown.float()]}}
    check(Kind("", build, draw), **own)


def with_freeu(model: Any) -> None:
    model.enable_freeu(s1=0.9, s2=0.2, b1=1.5, b2=1.6)


def with_lora(model: Any) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model.add_adapter(LoraConfig(r=2, target_modules=["to_q", "to_k", "to_v"], init_lora_weights=False))


class Tiles:
    """Attention over halves of the tokens, as HyperTile has it."""

    def __init__(self, attention: Any) -> None:
        self.forward = attention.forward

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        tiles = x.unflatten(1, (2, -1)).flatten(0, 1)
        return self.forward(tiles, *args, **kwargs).unflatten(0, (-1, 2)).flatten(1, 2)


def with_tiles(model: Any) -> None:
    for name, module in model.named_modules():
        if is_image_attention(name):
            module.forward = Tiles(module)


@pytest.mark.parametrize("join", [with_freeu, with_lora, with_tiles])
@pytest.mark.parametrize("joins", ["before", "after"])
def test_what_others_do_to_the_model(join: Callable[[Any], None], joins: str):
    def build() -> Any:
        pipe = tiny_pipeline(unet=unet())
        join(pipe.unet)
        return pipe

    pipe = build() if joins == "before" else tiny_pipeline(unet=unet())
    patch = todome.apply(pipe, HAND)
    if joins == "after":
        join(pipe.unet)
    found = draw(pipe)
    assert word_of(patch) == WORD
    close(found, Kind("", build, draw).by_hand(WORD))


class Shared(AttnProcessor2_0):
    """A processor of a user's own, in which pictures look at one another."""

    def __call__(self, attn: Any, hidden_states: Any, encoder_hidden_states: Any = None, *args: Any, **kwargs: Any):
        if encoder_hidden_states is None:
            encoder_hidden_states = hidden_states.flatten(0, 1).expand(len(hidden_states), -1, -1)
        return super().__call__(attn, hidden_states, encoder_hidden_states, *args, **kwargs)


def test_attention_that_is_not_known_to_look_at_single_rows_sees_all_of_them():
    def build() -> Any:
        pipe = tiny_pipeline(unet=unet())
        pipe.unet.set_attn_processor(Shared())
        return pipe

    check(Kind("", build, draw), WORD.replace("s", "S"))


def test_attention_that_somebody_looks_at_is_computed():
    pipe = tiny_pipeline(unet=unet(), kind=StableDiffusionSAGPipeline)
    dense = draw(pipe, sag_scale=0.7)
    patch = todome.apply(pipe, HAND)
    assert draw(pipe, sag_scale=0.7).equal(dense)
    assert word_of(patch) == "F" * 10


# Pipelines of other kinds


def boxed() -> Any:
    pipe = tiny_pipeline(unet=unet(attention_type="gated"), kind=StableDiffusionGLIGENPipeline)
    return talking(pipe)


def test_boxes_of_gligen():
    own = {"gligen_phrases": ["a rose"], "gligen_boxes": [[0.1, 0.2, 0.6, 0.7]], "gligen_scheduled_sampling_beta": 0.6}
    check(Kind("", boxed, draw), **own)


def draw_from_picture(pipe: Any, **options: Any) -> Tensor:
    given = {"num_inference_steps": 15, "strength": 0.8, "output_type": "latent"}
    words = {"prompt_embeds": text(1), "negative_prompt_embeds": noise(1, TEXT, WIDTH, seed=1)}
    return pipe(image=picture(), generator=torch.Generator().manual_seed(0), **given, **words, **options).images


def test_the_warm_up_of_img2img_is_a_share_of_the_whole_schedule():
    build = partial(tiny_pipeline, unet=unet(), kind=StableDiffusionImg2ImgPipeline)
    check(Kind("", build, draw_from_picture, lambda scheduler: from_alphas(scheduler)[3:]), "FFsFsFsFsFsF")


def test_few_steps_are_computed():
    pipe = tiny_pipeline(LCMScheduler(steps_offset=1, clip_sample=False), unet(time_cond_proj_dim=256))
    dense = draw(pipe, num_inference_steps=4)
    patch = todome.apply(pipe, HAND)
    assert draw(pipe, num_inference_steps=4).equal(dense)
    assert "so few steps" in str(patch)


# What a model is called with


def draw_loop(loop: Any, **options: Any) -> Tensor:
    """A guided loop of a user's own: in one batch, with whatever else the model takes."""
    loop.scheduler.set_timesteps(10)
    sample = noise(1, 4, *loop.grid)
    words = torch.cat([noise(1, TEXT, WIDTH, seed=1), text(1)])
    for t in loop.scheduler.timesteps:
        given = loop.scheduler.scale_model_input(torch.cat([sample] * 2), t)
        with torch.no_grad():
            output = loop.call(loop.unet, given, t, words, **loop.own, **options)
        unconditional, conditional = output.chunk(2)
        guided = unconditional + 5.0 * (conditional - unconditional)
        sample = loop.scheduler.step(guided, t, sample).prev_sample
    return sample


def call_diffusers(model: Any, *args: Any, **own: Any) -> Tensor:
    return model(*args, return_dict=False, **own)[0]


def call_by_name(model: Any, sample: Tensor, t: Tensor, words: Tensor, **own: Any) -> Tensor:
    return model(encoder_hidden_states=words, timestep=t, sample=sample, **own).sample


def call_ldm(model: Any, sample: Tensor, t: Tensor, words: Tensor, **own: Any) -> Tensor:
    return model(sample, t.expand(len(sample)), context=words, **own)


def call_ldm_with_copies(model: Any, sample: Tensor, t: Tensor, words: Tensor, **own: Any) -> Tensor:
    return model(x=sample, timesteps=torch.full((len(sample),), int(t)), context=words, **own)


def loop(model: Any, call: Any = call_diffusers, grid: tuple[int, int] = (16, 16), scheduler: Any = None, **own: Any):
    return lambda: SimpleNamespace(unet=model(), scheduler=(scheduler or ddim)(), call=call, grid=grid, own=own)


def euler() -> EulerDiscreteScheduler:
    return EulerDiscreteScheduler(steps_offset=1)


def with_conditions() -> Any:
    return unet(class_embed_type="timestep", time_cond_proj_dim=6)


class Controlled(UNetModel):
    """As the ControlledUnetModel of the first ControlNets."""

    def forward(self, x: Tensor, timesteps: Any = None, context: Any = None, y: Any = None, **kwargs: Any) -> Tensor:
        emb = self.time_embed(timestep_embedding(timesteps, self.model_channels))
        hidden, control = [], list(kwargs["control"])
        for block in self.input_blocks:
            x = block(x, emb, context)
            hidden.append(x)
        x = self.middle_block(x, emb, context)
        x += control.pop()
        for block in self.output_blocks:
            x = block(torch.cat([x, hidden.pop() + control.pop()], 1), emb, context)
        return self.out(x)


def controlled() -> Any:
    model = ldm_unet()
    model.__class__ = Controlled
    return model


def test_a_controlnet_of_ldm_keeps_the_deep_stages():
    sizes = [(32, 16)] * 2 + [(32, 8)] * 2 + [(32, 8)]
    control = [noise(2, channels, side, side, seed=place) for place, (channels, side) in enumerate(sizes)]
    check(Kind("", loop(controlled, call_ldm, control=control), draw_loop), "FFFfFfFfFF")


CALLS = {
    "named": loop(unet, call_by_name),
    "other sizes": loop(unet, grid=(13, 21)),
    "attention mask": loop(unet, encoder_attention_mask=torch.arange(2 * TEXT).view(2, TEXT) % 3 > 0),
    "scale": loop(unet, cross_attention_kwargs={"scale": 1.0}),
    "conditions": loop(with_conditions, class_labels=torch.tensor([3, 70]), timestep_cond=noise(2, 6)),
    "ldm": loop(ldm_unet, call_ldm),
    "ldm with copies": loop(ldm_unet, call_ldm_with_copies),
    "sgm": loop(lambda: lively(SgmUNet), call_ldm, additional_tokens=noise(2, 2, 8)),
    "scaled latents": loop(unet, scheduler=euler),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_loop_of_ones_own(name: str):
    levels = from_sigmas if name == "scaled latents" else from_alphas
    check(Kind(name, CALLS[name], draw_loop, levels))


# Other caches, other levers


def with_deepcache(pipe: Any) -> DeepCacheSDHelper:
    helper = DeepCacheSDHelper(pipe=pipe)
    helper.set_params(cache_interval=2, cache_branch_id=0)
    helper.enable()
    return helper


def test_deepcache_is_refused_and_later_left_alone():
    pipe = tiny_pipeline(unet=unet())
    helper = with_deepcache(pipe)
    cached = draw(pipe)
    with pytest.raises(RuntimeError, match=r"Reuse cannot be used beside DeepCache.*helper\.disable\(\)"):
        todome.apply(pipe, Reuse())
    assert draw(pipe).equal(cached), "nothing was changed"
    helper.disable()
    todome.apply(pipe, HAND)
    reused = draw(pipe)
    helper = with_deepcache(pipe)
    assert draw(pipe).equal(cached)
    helper.disable()
    assert draw(pipe).equal(reused)


def test_beside_fewer_keys():
    pipe = tiny_pipeline(unet=unet())
    dense = draw(pipe)
    todome.apply(pipe, Downsample(2))
    kind = Kind("", lambda: pipe, draw)
    expected = kind.by_hand(WORD)
    patch = todome.apply(pipe, HAND, Downsample(2))
    close(draw(pipe), expected)
    assert word_of(patch) == WORD
    assert not torch.allclose(expected, dense, rtol=1e-3)
