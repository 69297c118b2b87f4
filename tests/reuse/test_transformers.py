"""Reuse over steps on transformers: the picture that their output predicts goes on in its line."""

from types import SimpleNamespace
from typing import Any

import pytest
import tiny_transformers as tiny
import torch
from drawn_by_hand import Kind, close, from_sigmas, of_flow, word_of
from tiny_pipelines import assembled
from torch import Tensor, nn
from versions import part_of_diffusers
from zoo import TEXT, WIDTH, noise

import todome
from todome import Downsample, Reuse
from todome.hooks.root import find_latents, find_timestep
from todome.hosts.stages import arguments_of

FLOW: Any = {"levels": from_sigmas, "place": of_flow}
KINDS = [
    Kind("sd3", tiny.sd3, tiny.draw_sd3, **FLOW),
    Kind("flux", tiny.flux, tiny.draw_flux, **FLOW, guided=False, calls=2),
    Kind("pixart", tiny.pixart, tiny.draw_pixart),
    Kind("dit", tiny.dit, tiny.draw_dit),
    Kind("sana", tiny.sana, tiny.draw_sana, **FLOW),
    Kind("ltx", tiny.ltx, tiny.draw_ltx, **FLOW),
    Kind("qwen-image", tiny.qwen, tiny.draw_qwen, **FLOW, guided=False, calls=2),
    Kind("wan", tiny.wan, tiny.draw_wan, **FLOW, guided=False, calls=2),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


@each_kind
def test_by_hand(kind: Kind):
    pipe = kind.build()
    patch = todome.apply(pipe, Reuse(every=2, warmup=0.3))
    rows: list[int] = []
    pipe.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(len(args[0] if args else kwargs["hidden_states"])), with_kwargs=True
    )
    picture = kind.draw(pipe)
    assert word_of(patch) == "FFFoFoFoFF"
    assert rows == [2 if kind.guided else 1] * 7 * kind.calls
    close(picture, kind.by_hand("FFFoFoFoFF"))
    patch.remove()
    assert not torch.allclose(kind.draw(pipe), picture, rtol=1e-4)


@each_kind
def test_as_close_as_asked(kind: Kind):
    pipe = kind.build()
    patch = todome.apply(pipe, Reuse(keep=50))
    rows: list[int] = []
    pipe.transformer.register_forward_hook(lambda module, args, output: rows.append(len(output[0])))
    picture = kind.draw(pipe, num_inference_steps=25)
    word = word_of(patch)
    assert ("f" in word) == kind.guided
    assert rows == [
        1 if letter == "f" or not kind.guided else 2 for letter in word if letter != "o" for _ in range(kind.calls)
    ]
    close(picture, kind.by_hand(word, num_inference_steps=25))


def minus_flow(time: float) -> Any:
    place, of_latents, of_output, share = of_flow(time)
    return place, of_latents, -of_output, share


def test_a_model_that_gives_the_way_to_the_picture():
    kind = Kind("lumina2", tiny.lumina2, tiny.draw_lumina2, from_sigmas, minus_flow, guided=False, calls=2)
    test_by_hand(kind)


class Positional(nn.Module):
    """A transformer of a user's own, which gives a tensor."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model

    def forward(self, hidden_states: Tensor, words: Tensor, pooled: Tensor, timestep: Tensor) -> Tensor:
        return self.inner(hidden_states, words, pooled, timestep).sample


@pytest.mark.parametrize("form", [lambda t: t, lambda t: t / 1000, lambda t: float(t)], ids=["view", "scaled", "float"])
def test_a_loop_of_ones_own_with_whatever_comes_between(form: Any):
    model, scheduler = Positional(tiny.sd3().transformer), tiny.flow()
    words, pooled = noise(2, TEXT, WIDTH), noise(2, WIDTH)

    def draw(loop: Any) -> Tensor:
        sample = noise(1, 4, 8, 8)
        loop.scheduler.set_timesteps(10)
        for t in loop.scheduler.timesteps:
            with torch.no_grad():
                given = torch.as_tensor(form(t)).expand(2)
                output = loop.transformer(torch.cat([sample] * 2), words, pooled, given)
            sample = loop.scheduler.step(output[:1] + 3 * (output[1:] - output[:1]), t, sample).prev_sample
        return sample

    loop = SimpleNamespace(transformer=model, scheduler=scheduler)
    expected = Kind("", lambda: loop, draw, **FLOW).by_hand("FFFoFoFoFF")
    patch = todome.apply(model, Reuse(every=2), scheduler=scheduler)
    close(draw(loop), expected)
    assert word_of(patch) == "FFFoFoFoFF"


def test_a_cache_of_diffusers_is_refused_and_later_left_alone():
    settings = part_of_diffusers("FirstBlockCacheConfig", (0, 35))(threshold=1e-9)
    pipe = tiny.flux()
    pipe.transformer.enable_cache(settings)
    cached = tiny.draw_flux(pipe)
    with pytest.raises(RuntimeError, match=r"a cache of diffusers.*model\.disable_cache\(\) first"):
        todome.apply(pipe, Reuse(every=2))
    pipe.transformer.disable_cache()
    todome.apply(pipe, Reuse(every=2))
    assert not torch.allclose(tiny.draw_flux(pipe), cached, rtol=1e-4)
    pipe.transformer.enable_cache(settings)
    assert tiny.draw_flux(pipe).equal(cached)


def test_fewer_keys_stay_refused():
    pipe = tiny.sd3()
    with pytest.raises(todome.NothingToReduce, match="transformer without convolutions"):
        todome.apply(pipe, Downsample(2), Reuse())
    assert todome.apply(pipe, Reuse()).models == [pipe.transformer]


@pytest.mark.parametrize(
    "build", [tiny.text_encoder, tiny.prior, tiny.tiny_vae, tiny.listed, tiny.control], ids=lambda build: build.__name__
)
def test_what_is_no_denoiser_is_refused(build: Any):
    with pytest.raises(todome.NothingToReduce, match=r"cannot be used with Reuse.*latents and a timestep"):
        todome.apply(build(), Reuse())


def test_two_transformers_in_turn_begin_with_what_they_compute_themselves():
    models = {"transformer": tiny.wan().transformer, "transformer_2": tiny.wan().transformer}
    pipeline = part_of_diffusers("WanPipeline", oldest=(0, 35))
    pipe = assembled(pipeline, **models, scheduler=tiny.flow(), boundary_ratio=0.5)
    patch = todome.apply(pipe, Reuse(every=2))
    tiny.draw_wan(pipe, num_inference_steps=16)
    words = ["".join(state.report.done.values()) for state in patch._places[0].states]
    assert words == ["FFFFFoFo", "FFoFoFoF"]


def test_torchscript_is_no_denoiser():
    assert not arguments_of(torch.jit.ScriptModule)


X, WORDS, POOLED, T = torch.zeros(2, 5, 4), torch.zeros(2, 7, 4), torch.zeros(2, 4), torch.ones(2)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((X, T, WORDS), {}),
        ((X, WORDS, POOLED, T), {}),
        ((X, WORDS), {"timestep": T}),
        ((X,), {"mask": torch.zeros(2, 1, 5, 5), "timesteps": T}),
        ((), {"encoder_hidden_states": WORDS, "mask": torch.zeros(2, 1, 5, 5), "timestep": T, "hidden_states": X}),
        ((), {"context": WORDS, "timesteps": T, "x": X}),
    ],
)
def test_latents_and_timestep_among_the_arguments(args: Any, kwargs: Any):
    assert find_latents(args, kwargs) is X
    assert find_timestep(args, kwargs) is T
