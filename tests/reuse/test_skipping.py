"""Gates: they outlive what others put on a model and take off, leave no trace, and are copied and saved with it."""

import copy
import io
import itertools
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, cpu_offload_with_hook
from accelerate.hooks import remove_hook_from_module, remove_hook_from_submodules
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from neighbours import with_group_offload, with_lora
from promises import snapshot
from running import HAND, STEPS, computed, followed, last_of, steps_of
from running import dense as dense_picture
from sampling import SCHEDULERS
from torch import Tensor, nn
from zoo import SIDE, draw, noise, one_level_unet, small_unet, text, tiny_pipeline

import todome
from todome import Downsample, Reuse
from todome.hooks.skipping import GATE, Gated, gates_in
from todome.tools.suspending import suspended

CPU = torch.device("cpu")
PARTIAL = list("FFFFsFsFsFsF")


def saved(thing: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copied": copy.deepcopy,
    "pickled": lambda thing: pickle.loads(pickle.dumps(thing)),
    "saved": saved,
}
by_copy = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


def pipeline() -> Any:
    return tiny_pipeline(unet=small_unet())


def drawn(pipe: Any) -> Tensor:
    return draw(pipe, steps=STEPS)


def is_dense(model: nn.Module) -> bool:
    return not any(isinstance(module, Gated) or GATE in vars(module) for module in model.modules())


# What others put on a model


def by_module(unet: Any) -> Callable[[], None]:
    cpu_offload(unet, CPU)
    return lambda: remove_hook_from_submodules(unet)


def by_model(unet: Any) -> Callable[[], None]:
    _, hook = cpu_offload_with_hook(unet, CPU)
    return hook.remove


def by_model_again(unet: Any) -> Callable[[], None]:
    """As pipelines do after each picture."""
    cpu_offload_with_hook(unet, CPU)
    remove_hook_from_module(unet, recurse=True)
    return by_model(unet)


def by_group(unet: Any) -> Callable[[], None]:
    with_group_offload(unet)
    registry = pytest.importorskip("diffusers.hooks").HookRegistry
    return lambda: registry.check_if_exists_or_initialize(unet).remove_hook("group_offloading", recurse=True)


def by_blocks(unet: Any) -> Callable[[], None]:
    hooks = pytest.importorskip("diffusers.hooks", reason="this diffusers has no offloading by groups")
    options = {"offload_type": "block_level", "num_blocks_per_group": 1}
    hooks.apply_group_offloading(unet, onload_device=CPU, offload_device=CPU, **options)
    return lambda: hooks.HookRegistry.check_if_exists_or_initialize(unet).remove_hook("group_offloading", recurse=True)


def own_forward(unet: Any) -> Callable[[], None]:
    """As DeepCache and others replace a module's forward, and put it back as it was found."""
    parts = [unet, *unet.down_blocks, unet.mid_block, *unet.up_blocks]
    before = [(part, part.forward) for part in parts]
    for part, forward in before:
        part.forward = lambda *args, forward=forward, **kwargs: forward(*args, **kwargs)

    def put_back() -> None:
        for part, _ in before:
            del part.forward

    return put_back


OTHERS = {one.__name__: one for one in (by_module, by_model, by_model_again, by_group, by_blocks, own_forward)}
ORDERS = [
    "patch on, other on, other off, patch off",
    "patch on, other on, patch off, other off",
    "other on, patch on, patch off, other off",
    "other on, patch on, other off, patch off",
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_gates_outlive_what_others_put_on_and_take_off(other: Any, order: str):
    unet, (scheduler,) = followed()
    partial = last_of(steps_of(unet, scheduler))
    dense = dense_picture(unet, scheduler)
    kinds, take_off = {module: type(module) for module in unet.modules()}, {}
    is_on = False
    for action in order.split(", "):
        whose, way = action.split()
        if action == "patch on":
            take_off[whose] = todome.apply(unet, HAND, scheduler=scheduler).remove
        elif action == "other on":
            take_off[whose] = other(unet)
        else:
            take_off[whose]()
        is_on = way == "on" if whose == "patch" else is_on
        with computed(unet) as word:
            assert last_of(steps_of(unet, scheduler)).equal(partial if is_on else dense), action
        assert word == (PARTIAL if is_on else ["F"] * STEPS), action
    assert {module: type(module) for module in unet.modules()} == kinds
    assert is_dense(unet)


def test_no_module_is_left_out_that_would_load_the_next_one():
    """Offloading by groups with streams, which a CPU does not have."""
    unet, (scheduler,) = followed()
    group: Any = SimpleNamespace(hooks={"group_offloading": SimpleNamespace(group=SimpleNamespace(stream="a stream"))})
    unet.mid_block._diffusers_hook = group
    with computed(unet) as word:
        last_of(steps_of(unet, scheduler))
    assert "".join(word) == "FFFFfFfFfFfF"


# No trace


def test_remove_restores_every_attribute_and_class():
    unet = small_unet()
    before = snapshot(unet)
    for levers in ([HAND], [Downsample(2), HAND], [Reuse(every=2, stages=0)], [Reuse(keep=40)]):
        patch = todome.apply(unet, *levers)
        assert snapshot(unet) != before
        assert type(unet).__name__ == "UNet2DConditionModel"
        assert isinstance(unet, UNet2DConditionModel)
        assert type(unet).__module__ == UNet2DConditionModel.__module__
        patch.remove()
        assert snapshot(unet) == before
        assert type(unet) is UNet2DConditionModel


@pytest.mark.parametrize("ways", [*itertools.permutations(["with", "replaced", "removed"])])
def test_in_any_order_gates_come_off(ways: tuple[str, ...]):
    pipe = pipeline()
    dense, before = drawn(pipe), snapshot(pipe.unet)
    for way in ways:
        patch = todome.apply(pipe, HAND)
        partial = drawn(pipe)
        if way == "with":
            with todome.apply(pipe, Reuse(every=3, warmup=0.3, stages=1)), patch:
                pass
            patch.remove()
        elif way == "replaced":
            second = todome.apply(pipe, HAND)
            patch.remove()
            assert drawn(pipe).equal(partial)
            second.remove()
        else:
            todome.remove(pipe)
        assert drawn(pipe).equal(dense)
        assert snapshot(pipe.unet) == before


def test_a_patch_inside_of_another_gives_its_gates_back():
    pipe = pipeline()
    dense = drawn(pipe)
    with todome.apply(pipe, HAND):
        partial = drawn(pipe)
        for lever in (Reuse(every=3, warmup=0.3, stages=0), Downsample(2), Reuse(every=1)):
            with todome.apply(pipe, lever):
                assert not drawn(pipe).equal(partial)
            assert drawn(pipe).equal(partial)
    assert drawn(pipe).equal(dense)
    assert is_dense(pipe.unet)


def test_a_class_that_others_put_on_top_stays():
    """As FSDP and parametrizations do: they derive a class from the one they find."""
    unet = small_unet()
    patch = todome.apply(unet, HAND)
    kind = type("Sharded", (type(unet.mid_block),), {})
    middle: Any = unet.mid_block
    middle.__class__ = kind
    patch.remove()
    assert type(middle) is kind
    assert GATE not in vars(middle)
    unet(noise(2, 4, SIDE, SIDE), 5, text(2))


def test_the_state_of_a_patched_model_is_that_of_a_dense_one():
    unet, dense = small_unet(), small_unet()
    todome.apply(unet, HAND)
    assert unet.state_dict().keys() == dense.state_dict().keys()
    assert [name for name, _ in unet.named_modules()] == [name for name, _ in dense.named_modules()]
    assert repr(unet) == repr(dense)
    unet.load_state_dict(dense.state_dict())


# Copies


@by_copy
def test_a_copy_of_a_model_stands_alone(copied: Any):
    pipe = pipeline()
    dense = drawn(pipe)
    todome.apply(pipe, HAND)
    partial = drawn(pipe)
    twin = copied(pipe.unet)
    assert type(twin).__name__ == "UNet2DConditionModel"
    other = tiny_pipeline(unet=twin)
    assert drawn(other).equal(dense), "nobody tells it of a run"
    todome.apply(other, HAND)
    assert drawn(other).equal(partial)
    todome.remove(other)
    assert type(twin) is UNet2DConditionModel
    assert is_dense(twin)
    assert drawn(other).equal(dense)
    assert drawn(pipe).equal(partial)


@by_copy
def test_a_part_of_a_patched_model_is_a_part(copied: Any):
    """As trainable copies of blocks are made."""
    unet = small_unet()
    alone = len(pickle.dumps(unet.mid_block))
    x, embedding = noise(1, 16, 8, 8), noise(1, 32)
    dense = unet.mid_block(x, embedding, encoder_hidden_states=text(1))
    patch = todome.apply(unet, HAND)
    assert len(pickle.dumps(unet.mid_block)) < 2 * alone
    twin = copied(unet.mid_block)
    for part in (twin, unet.mid_block):
        assert part(x, embedding, encoder_hidden_states=text(1)).equal(dense)
    todome.remove(twin)
    assert is_dense(twin)
    assert len(list(gates_in(unet))) == 4, "the model, and what is below its first stage"
    patch.remove()
    assert is_dense(unet)


@by_copy
def test_a_copy_in_the_middle_of_a_run_takes_no_tensors_along(copied: Any):
    unet, (scheduler,) = followed()
    empty = len(pickle.dumps(unet))
    run = steps_of(unet, scheduler)
    for _ in range(6):
        next(run)
    assert len(pickle.dumps(unet)) < 1.1 * empty
    assert not is_dense(copied(unet))
    list(run)
    unet(noise(2, 4, SIDE, SIDE), 5, text(2))


@by_copy
def test_a_pipeline_is_copied_with_its_gates(copied: Any):
    pipe = pipeline()
    todome.apply(pipe, HAND)
    partial = drawn(pipe)
    twin = copied(pipe)
    twin.set_progress_bar_config(disable=True)
    assert drawn(twin).equal(partial)
    todome.remove(pipe)
    assert drawn(twin).equal(partial)
    todome.remove(twin)
    assert is_dense(twin.unet)


def test_a_shallow_copy_is_taken_off_by_itself():
    unet = small_unet()
    patch = todome.apply(unet, HAND)
    twin = copy.copy(unet)
    patch.remove()
    todome.remove(twin)
    assert is_dense(twin)
    assert is_dense(unet)


# Files and neighbours


def test_what_is_saved_is_the_dense_model(tmp_path: Any):
    pipe = pipeline()
    dense = drawn(pipe)
    with todome.apply(pipe, HAND):
        drawn(pipe)
        pipe.save_pretrained(tmp_path / "pipeline")
        pipe.unet.save_pretrained(tmp_path / "model")
        again = type(pipe.unet).from_pretrained(tmp_path / "model")
        built = type(pipe.unet).from_config(pipe.unet.config)
    absent: Any = dict.fromkeys(name for name, part in pipe.components.items() if part is None)
    loaded = StableDiffusionPipeline.from_pretrained(tmp_path / "pipeline", **absent)
    loaded.set_progress_bar_config(disable=True)
    assert type(loaded.unet) is UNet2DConditionModel
    assert is_dense(loaded.unet)
    for unet in (loaded.unet, UNet2DConditionModel.from_pretrained(tmp_path / "model"), again):
        pipe.unet = unet
        torch.testing.assert_close(drawn(pipe), dense)
    with torch.no_grad():
        built(noise(1, 4, SIDE, SIDE), 5, text(1))


def test_adapters_come_and_go():
    pipe, other = pipeline(), pipeline()
    todome.apply(pipe, HAND)
    with_lora(pipe.unet)
    with_lora(other.unet)
    adapted = drawn(other)
    todome.apply(other, HAND)
    assert drawn(pipe).equal(drawn(other))
    pipe.unet.fuse_lora()
    with computed(pipe.unet) as word:
        drawn(pipe)
    assert word == PARTIAL
    pipe.unet.unfuse_lora()
    todome.remove(pipe)
    torch.testing.assert_close(drawn(pipe), adapted, rtol=1e-3, atol=1e-3)


def test_without_its_patches_for_a_while():
    """In the middle of a run too: what is drawn in between leaves it as it was."""
    pipe = pipeline()
    dense = drawn(pipe)
    todome.apply(pipe, Downsample(2), HAND)
    alone, patched = drawn(pipe), snapshot(pipe.unet)

    def aside(pipe: Any, step: int, timestep: Any, state: Any) -> Any:
        if step in (2, 5):
            with suspended(pipe):
                assert is_dense(pipe.unet)
                assert drawn(pipe).equal(dense)
                with todome.apply(pipe, Reuse(every=3, warmup=0.3, stages=0)):
                    drawn(pipe)
        return state

    assert draw(pipe, steps=STEPS, callback_on_step_end=aside).equal(alone)
    assert snapshot(pipe.unet).keys() == patched.keys()
    assert drawn(pipe).equal(alone)
    todome.remove(pipe)
    assert is_dense(pipe.unet)


def test_a_model_without_a_middle_has_no_gates_but_its_own():
    unet = one_level_unet()
    scheduler = SCHEDULERS["DDIM"]()
    todome.apply(unet, HAND, scheduler=scheduler)
    assert [module for module, _ in gates_in(unet)] == [unet]
    last_of(steps_of(unet, scheduler))
