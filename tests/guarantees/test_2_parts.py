"""Guarantee 2, further: whatever a patch is found from, it is taken off as a whole, and what it replaced comes back."""

import contextlib
import copy
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from accelerate.hooks import remove_hook_from_submodules
from diffusers import StableDiffusionControlNetPipeline
from promises import hook_tables, snapshot
from torch import Tensor, nn
from zoo import (
    SIDE,
    controlnet,
    controlnet_inputs,
    draw,
    noise,
    one_level_unet,
    phase_of,
    run,
    small_unet,
    text,
    tiny_pipeline,
    token_state,
    unet_inputs,
)

import todome
from todome import Downsample, Merge


class Wrapper(nn.Module):
    """A module around the UNet, as trainers have it."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Any:
        return self.unet(sample, timestep, encoder_hidden_states)


@pytest.mark.parametrize("take_off", [lambda w: todome.remove(w.unet), lambda w: todome.apply(w.unet).remove()])
def test_a_patch_on_a_module_around_the_model_is_found_from_the_model(take_off: Any):
    wrapper = Wrapper(small_unet())
    dense, before = run(wrapper, **unet_inputs()), snapshot(wrapper)
    todome.apply(wrapper, Downsample(2))
    take_off(wrapper)
    assert snapshot(wrapper) == before
    assert run(wrapper, **unet_inputs()).equal(dense)


def test_a_patch_on_the_model_is_found_from_a_module_around_it():
    pipeline = tiny_pipeline()
    before = dict(vars(pipeline.scheduler))
    todome.apply(pipeline, Downsample(2))
    todome.remove(Wrapper(pipeline.unet))
    assert vars(pipeline.scheduler) == before


def with_controlnet(net: Any) -> Any:
    return tiny_pipeline(unet=small_unet(), kind=StableDiffusionControlNetPipeline, controlnet=net)


def drawn(pipeline: Any) -> Tensor:
    return draw(pipeline, steps=4, image=torch.linspace(0, 1, 3 * (2 * SIDE) ** 2).view(1, 3, 2 * SIDE, 2 * SIDE))


def test_pipelines_that_share_a_controlnet_each_with_its_patch():
    net = controlnet()
    first, second = with_controlnet(net), with_controlnet(net)
    alone = []
    for pipeline in (first, second):
        with todome.apply(pipeline, Downsample(2, stop=0.5)):
            alone.append(drawn(pipeline))
    patches = [todome.apply(pipeline, Downsample(2, stop=0.5)) for pipeline in (first, second)]
    assert [drawn(pipeline).equal(one) for pipeline, one in zip((first, second), alone, strict=True)] == [True, True]
    for patch in patches:
        patch.remove()
    for pipeline in (first, second):
        assert not {"step", "set_timesteps"} & vars(pipeline.scheduler).keys()
        assert not any(hooks for _, hooks in hook_tables(pipeline.unet))
    assert not any(hooks for _, hooks in hook_tables(net))


def test_a_step_that_the_host_says_counts_once():
    net = controlnet()
    first, second = with_controlnet(net), with_controlnet(net)
    patches = [todome.apply(pipeline, Downsample(2)) for pipeline in (first, second)]
    sample = torch.zeros(1, 4, SIDE, SIDE)
    first.scheduler.set_timesteps(10)
    patches[0].at(3, 10)
    first.scheduler.step(sample, first.scheduler.timesteps[3], sample)
    assert phase_of(patches[0]) == 4


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
@pytest.mark.parametrize("kind", [Downsample, Merge])
def test_a_part_of_a_patched_model_is_a_part(kind: type, copied: Any):
    """As trainable copies of blocks are made."""
    unet = small_unet()
    alone = len(pickle.dumps(unet.mid_block))
    x, embedding = noise(1, 16, 8, 8), noise(1, 32)
    dense = unet.mid_block(x, embedding, encoder_hidden_states=text(1))
    patch = todome.apply(unet, kind())
    assert len(pickle.dumps(unet.mid_block)) < 2 * alone
    twin = copied(unet.mid_block)
    patch.remove()
    todome.remove(twin)
    assert twin(x, embedding, encoder_hidden_states=text(1)).equal(dense)
    assert not any(hooks for _, hooks in hook_tables(twin))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_patch_is_copied_with_its_model(order: tuple[int, int]):
    unet = small_unet()
    both = unet, todome.apply(unet, Downsample(2))
    twins = copy.deepcopy(tuple(both[i] for i in order))
    twin, patch = (twins[order.index(i)] for i in (0, 1))
    run(twin, **unet_inputs())
    patch.remove()
    assert not any(hooks for _, hooks in hook_tables(twin))
    assert any(hooks for _, hooks in hook_tables(unet))


def test_offloading_is_taken_off_after_the_patch():
    unet = one_level_unet()
    dense = run(unet, **unet_inputs())
    patch = todome.apply(unet, Downsample(2))
    cpu_offload(unet, torch.device("cpu"))
    run(unet, **unet_inputs())
    patch.remove()
    remove_hook_from_submodules(unet)
    assert run(unet, **unet_inputs()).equal(dense)


def test_a_patch_inside_of_another_gives_it_back():
    pipeline = tiny_pipeline()
    dense = draw(pipeline)
    with todome.apply(pipeline, Downsample(2, stop=0.5)) as outer:
        reduced = draw(pipeline)
        with todome.apply(pipeline, Merge(0.5)):
            assert not draw(pipeline).equal(reduced)
            assert "replaced" in str(outer)
            with pytest.raises(RuntimeError, match="replaced"):
                outer.at(0, 10)
        assert draw(pipeline).equal(reduced)
        assert outer.is_on
    assert draw(pipeline).equal(dense)
    assert not {"step", "set_timesteps"} & vars(pipeline.scheduler).keys()


def test_a_model_that_is_called_by_its_forward_moves_too():
    pipeline = tiny_pipeline()
    patch = todome.apply(pipeline, Downsample(2, stop=0.5))
    pipeline.scheduler.set_timesteps(4)
    sample, seen = noise(1, 4, SIDE, SIDE), []
    layer = next(m for name, m in pipeline.unet.named_modules() if name.endswith("attn1.to_k"))
    layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    for timestep in pipeline.scheduler.timesteps:
        call = pipeline.unet.forward if seen else pipeline.unet
        output = call(sample, timestep, text(1)).sample
        sample = pipeline.scheduler.step(output, timestep, sample).prev_sample
    tokens = SIDE**2
    assert seen == [tokens // 4] * 2 + [tokens] * 2
    patch.remove()


@pytest.mark.parametrize("change", [todome.remove, lambda unet: todome.apply(unet, Downsample(2))])
def test_a_patch_goes_after_the_call_that_another_thread_makes(change: Any):
    """Tokens that were merged are unmerged: a call is reduced as a whole or not at all."""
    unet, merged, go_on = small_unet(), threading.Event(), threading.Event()
    todome.apply(unet, Merge(0.5))
    expected = run(unet, **unet_inputs())

    def pause(*_: Any) -> None:
        merged.set()
        go_on.wait(0.5)

    attention = next(m for name, m in unet.named_modules() if name.endswith("attn1.to_out.0"))
    attention.register_forward_pre_hook(pause)
    with ThreadPoolExecutor(2) as pool:
        drawing = pool.submit(run, unet, **unet_inputs())
        assert merged.wait(30)
        changing = pool.submit(change, unet)
        time.sleep(0.1)
        go_on.set()
        assert drawing.result(30).equal(expected)
        changing.result(30)
    assert not run(unet, **unet_inputs()).equal(expected)


@pytest.mark.parametrize("change", [todome.remove, todome.apply])
def test_a_patch_that_cannot_go_stays_as_a_whole(monkeypatch: pytest.MonkeyPatch, change: Any):
    """On the UNet too, while another thread computes the ControlNet for too long."""
    monkeypatch.setattr("todome.hooks.patched.PATIENCE", 0.1)
    pipeline, inside, go_on = with_controlnet(controlnet()), threading.Event(), threading.Event()
    patch = todome.apply(pipeline, Downsample(2))
    expected = drawn(pipeline)
    pause = pipeline.controlnet.conv_in.register_forward_pre_hook(pausing(inside, go_on))
    with ThreadPoolExecutor(1) as pool:
        computing = pool.submit(pipeline.controlnet, **controlnet_inputs())
        assert inside.wait(30)
        with pytest.raises(RuntimeError, match="while another thread computes"):
            change(pipeline)
        go_on.set()
        computing.result(30)
    pause.remove()
    assert patch.is_on
    assert drawn(pipeline).equal(expected)
    patch.remove()
    assert not {"step", "set_timesteps"} & vars(pipeline.scheduler).keys()


def test_a_thread_that_dies_in_a_compiled_call_holds_up_nobody():
    """torch runs no hook for SystemExit: nothing tells that the call is over."""
    unet = one_level_unet()
    patch = todome.apply(unet, Downsample(2))
    patch.shared.runs.at(0, 4)
    token_state(patch).graph.traced = True  # as a compiled graph sets it
    unet.conv_out.register_forward_hook(end_this_thread)
    dying = threading.Thread(target=run_until_it_ends, args=(unet,))
    dying.start()
    dying.join()
    unet.conv_out._forward_hooks.clear()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run, unet, **unet_inputs()).result(timeout=30)


def pausing(inside: threading.Event, go_on: threading.Event) -> Any:
    """A hook that waits in the middle of a call."""

    def pause(*_: Any) -> None:
        inside.set()
        go_on.wait(30)

    return pause


def run_until_it_ends(unet: Any) -> None:
    with contextlib.suppress(SystemExit):
        run(unet, **unet_inputs())


def end_this_thread(*_: Any) -> None:
    raise SystemExit
