"""What todome promises, over the whole zoo: guarantees 1 to 4, 6 and 7 (5 is test_compile, 8 test_together)."""

import copy
import inspect
import itertools
import pickle
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import ModelMixin
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from zoo import (
    ZOO,
    Host,
    host_named,
    image_keys,
    is_image_attention,
    ldm_unet,
    model_of,
    noise,
    picture,
    recorded,
    reduced_everywhere,
    run,
    small_unet,
    token_counts,
    unet_inputs,
)

import todome
from todome import Downsample, Merge

over_zoo = pytest.mark.parametrize("host", ZOO, ids=str)
both = pytest.mark.parametrize("kind", [Downsample, Merge])
# "auto", the default, says so where it finds nothing to do, as on grids this small.
AUTO_IS_DENSE = 'ignore:factor="auto" leaves this model dense'


def among(*names: str) -> Any:
    return pytest.mark.parametrize("host", [host_named(name) for name in names], ids=str)


def reduced(host: Host, target: Any, kind: type, step: int = 3, **changes: Any) -> Tensor:
    """The output in one step under a patch that is taken off again."""
    with todome.apply(target, reduced_everywhere(kind, host, **changes)) as patch:
        patch.at(step, 10)
        return host.run(target)


# ------------------------------------------------------------- 1. where nothing is reduced, nothing differs by one bit


@both
@over_zoo
def test_a_reduction_changes_the_output(host: Host, kind: type):
    """Without this, all that is said below about equal outputs would be empty."""
    target = host.build()
    assert not torch.allclose(host.run(target), reduced(host, target, kind), atol=1e-4)


@over_zoo
@pytest.mark.parametrize("reduction", [Downsample(factor=1), Downsample(factor=1.0), Merge(ratio=0)], ids=str)
def test_factor_1_and_ratio_0_are_dense(host: Host, reduction: Any):
    target = host.build()
    dense = host.run(target)
    todome.apply(target, reduction)
    assert torch.equal(host.run(target), dense)


@over_zoo
@pytest.mark.filterwarnings(AUTO_IS_DENSE)
def test_auto_is_dense_on_small_grids(host: Host):
    target = host.build()
    dense = host.run(target)
    todome.apply(target)
    assert torch.equal(host.run(target), dense)


@both
@over_zoo
def test_outside_the_window_is_dense(host: Host, kind: type):
    target = host.build()
    dense = host.run(target)
    patch = todome.apply(target, reduced_everywhere(kind, host, start=0.25, stop=0.75))
    is_dense = []
    for step in range(4):
        patch.at(step, 4)
        is_dense.append(torch.equal(host.run(target), dense))
    assert is_dense == [True, False, False, True]


# ------------------------------------------------------------------------------------------- 2. remove leaves no trace


def snapshot(target: Any) -> dict[str, Any]:
    """Every attribute of every module, with what is in the tables among them: hooks, parameters, children."""
    return {
        name: {attr: dict(value) if isinstance(value, dict) else value for attr, value in vars(module).items()}
        | {"class": type(module)}
        for name, module in model_of(target).named_modules()
    }


@both
@over_zoo
def test_remove_restores_output_and_attributes(host: Host, kind: type):
    target = host.build()
    dense, before = host.run(target), snapshot(target)
    patch = todome.apply(target, reduced_everywhere(kind, host))
    assert snapshot(target) != before
    host.run(target)
    patch.remove()
    assert snapshot(target) == before
    assert torch.equal(host.run(target), dense)


@over_zoo
def test_remove_restores_after_several_applies(host: Host):
    target = host.build()
    dense, before = host.run(target), snapshot(target)
    for kind in (Downsample, Merge, Merge, Downsample):
        todome.apply(target, reduced_everywhere(kind, host))
        host.run(target)
    todome.remove(target)
    assert snapshot(target) == before
    assert torch.equal(host.run(target), dense)


def take_off_by_patch(target: Any, patches: list[todome.Patch]) -> None:
    patches[-1].remove()


def take_off_by_target(target: Any, patches: list[todome.Patch]) -> None:
    todome.remove(target)


def take_off_like_tomesd(target: Any, patches: list[todome.Patch]) -> None:
    todome.remove_patch(target)


def take_off_in_every_way(target: Any, patches: list[todome.Patch]) -> None:
    for patch in patches:
        patch.remove()
    todome.remove(target)
    todome.remove_patch(target)


WAYS = [take_off_by_patch, take_off_by_target, take_off_like_tomesd, take_off_in_every_way]


@pytest.mark.parametrize("take_off", WAYS)
@among("sd1", "ldm1-wrapped")
def test_any_order_of_applies_comes_off_in_any_way(host: Host, take_off: Callable[..., None]):
    target = host.build()
    before = snapshot(target)
    reductions = [
        Downsample(factor=2),
        Merge(cross_attention=True, feed_forward=True),
        Downsample(factor=1.5, stop=0.5),
    ]
    for order in itertools.permutations(reductions):
        patches = [todome.apply(target, reduction) for reduction in order]
        take_off(target, patches)
        assert snapshot(target) == before


class PowerCut(Exception):
    pass


def fail(*_: Any) -> None:
    raise PowerCut


@both
@over_zoo
def test_an_exception_inside_with_takes_the_patch_off(host: Host, kind: type):
    """In the middle of a call, when a block has begun and not ended."""
    target = host.build()
    dense, before = host.run(target), snapshot(target)
    last = [module for name, module in model_of(target).named_modules() if is_image_attention(name)][-1]
    failing = last.register_forward_pre_hook(fail)
    with pytest.raises(PowerCut), todome.apply(target, reduced_everywhere(kind, host)):
        host.run(target)
    failing.remove()
    assert snapshot(target) == before
    assert torch.equal(host.run(target), dense)


@over_zoo
def test_removing_nothing_is_fine(host: Host):
    target = host.build()
    before = snapshot(target)
    todome.remove(target)
    patch = todome.apply(target, Downsample(factor=2))
    patch.remove()
    patch.remove()
    todome.remove_patch(target)
    assert snapshot(target) == before


@over_zoo
def test_a_replaced_patch_cannot_remove_the_newer_one(host: Host):
    target = host.build()
    old = todome.apply(target, Merge())
    new = todome.apply(target, Downsample(factor=2))
    patched = snapshot(target)
    old.remove()
    assert snapshot(target) == patched
    new.remove()
    assert not any(hooks for _, hooks in hook_tables(target))


def hook_tables(target: Any) -> list[tuple[str, dict[int, Any]]]:
    return [(name, table) for name, table in tables_of(snapshot(target)) if name.endswith("_hooks")]


def tables_of(attributes: dict[str, Any]) -> list[tuple[str, Any]]:
    return [item for module in attributes.values() for item in module.items()]


def test_remove_restores_the_scheduler_of_a_pipeline(pipe: Any):
    dense, before = picture(pipe), dict(vars(pipe.scheduler))
    with todome.apply(pipe, Downsample(factor=2)):
        assert vars(pipe.scheduler) != before
        assert not torch.equal(picture(pipe), dense)
    assert vars(pipe.scheduler).keys() == before.keys()
    assert torch.equal(picture(pipe), dense)


# -------------------------------------------------------------------- 3. attention sees what print(patch) says it sees

SETTINGS: list[tuple[str, Callable[[Host], Any], Callable[[int, int], int]]] = [
    ("factor 2", lambda host: Downsample(factor=(2,) * host.levels), lambda h, w: (h // 2) * (w // 2)),
    ("factor 1.5", lambda host: Downsample(factor=(1.5,) * host.levels), lambda h, w: int(h / 1.5) * int(w / 1.5)),
    ("ratio 0.5", lambda host: Merge(ratio=(0.5,) * host.levels), lambda h, w: h * w - int(h * w * 0.5)),
    (
        "ratio 0.75, as far as whole cells go",
        lambda host: Merge(ratio=(0.75,) * host.levels),
        lambda h, w: max(h * w - int(h * w * 0.75), (h // 2) * (w // 2)),
    ),
]


@pytest.mark.parametrize(("reduction", "left"), [s[1:] for s in SETTINGS], ids=[s[0] for s in SETTINGS])
@over_zoo
def test_attention_sees_what_the_patch_says(host: Host, reduction: Callable, left: Callable):
    target = host.build()
    dense = image_keys(host, target)
    patch = todome.apply(target, reduction(host))
    seen = image_keys(host, target)
    said = {grid: count for level in patch.levels for grid, count in level.grids.items()}
    assert said == {grid: left(*grid) for grid in host.grids}
    for h, w in host.grids:
        names = [name for name, keys in dense.items() if keys == h * w + host.extra]
        assert {seen[name] for name in names} == {left(h, w) + host.extra}
        assert f"{h}x{w} = {h * w} -> {left(h, w)}" in str(patch)


@over_zoo
def test_the_patch_counts_layers_and_levels(host: Host):
    target = host.build()
    dense = list(image_keys(host, target).values())
    patch = todome.apply(target, Downsample(factor=2))
    assert [level.level for level in patch.levels] == list(range(1, host.levels + 1))
    assert [level.layers for level in patch.levels] == [dense.count(h * w + host.extra) for h, w in host.grids]


@both
@over_zoo
def test_a_number_is_for_level_1_alone(host: Host, kind: type):
    target = host.build()
    dense = image_keys(host, target)
    patch = todome.apply(target, Downsample(factor=2) if kind is Downsample else Merge(ratio=0.5))
    seen = image_keys(host, target)
    finest = max(dense.values())
    assert all((seen[name] < keys) == (keys == finest) for name, keys in dense.items())
    assert [level.setting is None for level in patch.levels] == [False] + [True] * (host.levels - 1)


@both
@over_zoo
def test_temporal_text_and_gated_attention_are_left_alone(host: Host, kind: type):
    target = host.build()
    dense = token_counts(host, target)
    todome.apply(target, reduced_everywhere(kind, host))
    seen = token_counts(host, target)
    assert seen != dense
    assert all(seen[name] == keys for name, keys in dense.items() if not is_image_attention(name))


@pytest.mark.parametrize(
    ("host", "others"),
    [("animatediff", "motion_modules"), ("svd", "temporal_"), ("unet3d", "temp_attentions"), ("gligen", "fuser")],
)
def test_the_zoo_has_attention_that_must_be_left_alone(host: str, others: str):
    names = token_counts(host_named(host), host_named(host).build())
    assert any(others in name and not is_image_attention(name) for name in names)


@over_zoo
def test_merge_reaches_cross_attention_and_feed_forward_when_asked(host: Host):
    target, parts = host.build(), r"attn[12]\.to_q$|ff\.(net\.)?0$"
    dense = token_counts(host, target, parts)
    todome.apply(target, Merge(attention=False, cross_attention=True, feed_forward=True))
    seen = token_counts(host, target, parts)
    reached = {name for name, count in seen.items() if count < dense[name]}
    h, w = host.grids[0]
    assert {dense[name] - seen[name] for name in reached} == {int(h * w * 0.5)}
    parts_of_level_1 = {name for name, count in dense.items() if count - h * w in (0, host.extra)}
    assert reached == {name for name in parts_of_level_1 if not re.search(r"attn1|fuser", name)}


# ------------------------------------------------------------------------ the right rows are kept, in the right places


def rows_in(kept: Tensor, whole: Tensor) -> list[int]:
    """Which rows of the whole these are, in their order."""
    return (kept[:, None] == whole[None]).all(-1).float().argmax(1).tolist()


def first_keys(host: Host, target: Any) -> Tensor:
    """The input of the first self-attention's `to_k`: what is before it is no attention, so it is dense's own."""
    with recorded(target, r"attn1\.to_k$") as seen:
        host.run(target)
    keys = next(calls[0] for name, calls in seen.items() if is_image_attention(name.removesuffix(".to_k")))
    return keys[0, host.extra :]  # (keys, channels)


@over_zoo
def test_fixed_keeps_the_corner_of_every_cell(host: Host):
    target = host.build()
    whole = first_keys(host, target)
    height, width = host.grids[0]
    todome.apply(target, Downsample(factor=2, phase="fixed"))
    kept = rows_in(first_keys(host, target), whole)
    top, left = ([int(i * n / (n // 2)) for i in range(n // 2)] for n in (height, width))
    assert kept == [r * width + c for r in top for c in left]


@over_zoo
def test_dither_keeps_every_key_of_its_cell_in_turn(host: Host):
    """Cells are 2x2, and larger at places where a side is odd: those need more turns."""
    target = host.build()
    whole = first_keys(host, target)
    height, width = host.grids[0]
    turns = (2 + height % 2) * (2 + width % 2)
    patch = todome.apply(target, Downsample(factor=2))
    met: list[list[int]] = []
    for step in range(turns):
        patch.at(step, turns)
        met.append(rows_in(first_keys(host, target), whole))
    rows = [row for kept in met for row in kept]
    assert set(rows) == set(range(height * width))
    if turns == 4:
        assert len(rows) == height * width
    for cell in zip(*met, strict=True):
        places = {divmod(row, width) for row in cell}
        assert all(max(axis) - min(axis) <= 2 for axis in zip(*places, strict=True))


def moved_keys(before: Tensor, after: Tensor) -> list[int]:
    return (before != after).any(-1).nonzero().flatten().tolist()


@pytest.mark.parametrize(("row", "column", "key"), [(0, 0, 0), (4, 6, 2 * 9 + 3), (14, 16, 7 * 9 + 8), (4, 7, None)])
@among("sd1", "ldm1", "pixart")
def test_one_token_moves_exactly_its_key(host: Host, row: int, column: int, key: int | None):
    """The layout probe: nudge one place of the picture, where it is still (batch, channels, height, width)."""
    target = host.build()
    todome.apply(target, Downsample(factor=2, phase="fixed"))
    before = first_keys(host, target)
    nudge_place(host, target, row, column)
    assert moved_keys(before, first_keys(host, target)) == ([] if key is None else [key])


def nudge_place(host: Host, model: nn.Module, row: int, column: int) -> None:
    """Before the projection to tokens: a normalisation lies in front of it in UNets, which would spread the nudge."""
    inlet, scale = (model.get_submodule("pos_embed"), 2) if host.name == "pixart" else (first_inlet(model), 1)

    def nudge(_: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        x = args[0].clone()
        x[..., row * scale : (row + 1) * scale, column * scale : (column + 1) * scale] += 1
        return x

    inlet.register_forward_pre_hook(nudge)


def first_inlet(model: nn.Module) -> nn.Module:
    return next(module for name, module in model.named_modules() if name.endswith("proj_in"))


# ------------------------------------------------------------------------------------------ 4. same seed, same picture


@both
@over_zoo
def test_the_same_step_gives_the_same_output(host: Host, kind: type):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    outputs = []
    for step in (3, 4, 3):
        patch.at(step, 10)
        outputs.append(host.run(target))
    patch.remove()
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], reduced(host, target, kind))


@both
@over_zoo
def test_another_seed_gives_another_output(host: Host, kind: type):
    target = host.build()
    assert not torch.equal(reduced(host, target, kind), reduced(host, target, kind, seed=1))


@pytest.mark.parametrize("reduction", [Downsample(factor=2), Downsample(factor=2, phase="random"), Merge()], ids=str)
def test_the_same_seed_gives_the_same_picture(pipe: Any, reduction: Any):
    todome.apply(pipe, reduction)
    first, second = picture(pipe), picture(pipe)
    todome.remove(pipe)
    todome.apply(pipe, reduction)
    assert torch.equal(first, second)
    assert torch.equal(first, picture(pipe))


@both
@over_zoo
def test_both_halves_of_a_batch_get_the_same_choice(host: Host, kind: type):
    inputs = host.inputs(1)
    twice = tree_map(lambda x: x.repeat(2, *[1] * (x.ndim - 1)) if isinstance(x, Tensor) and x.ndim else x, inputs)
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    with recorded(target, r"\.to_k$") as seen:
        patch.at(3, 10)
        run(target, **twice)
    for calls in seen.values():
        first, second = calls[0].chunk(2)
        torch.testing.assert_close(first, second)


@both
@among("sd1", "sdxl", "dit", "ldm1")
def test_guidance_in_one_batch_or_in_two_calls_is_the_same(host: Host, kind: type):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    patch.at(3, 10)
    together = host.run(target)
    for half in (0, 1):
        alone = tree_map(lambda x, i=half: x[i : i + 1] if isinstance(x, Tensor) and x.ndim else x, host.inputs())
        torch.testing.assert_close(run(target, **alone), together[half : half + 1], rtol=1e-4, atol=1e-5)


def gradients(model: Any, inputs: list[dict[str, Any]]) -> list[Tensor]:
    """Of a loss over one call for each of the inputs, before one backward pass."""
    outputs = [model(**given) for given in inputs]
    loss = torch.stack([tensor.square().mean() for output in outputs for tensor in tensors_in(output)]).sum()
    return list(torch.autograd.grad(loss, used_parameters(model), allow_unused=False))


def tensors_in(output: Any) -> list[Tensor]:
    output = output.to_tuple() if hasattr(output, "to_tuple") else output
    return [output] if isinstance(output, Tensor) else [t for part in output for t in tensors_in(part)]


def used_parameters(model: nn.Module) -> list[Tensor]:
    """Those of every attention: they feel a wrong choice first."""
    return [parameter for name, parameter in model.named_parameters() if ".to_k." in name or ".to_v." in name]


def with_checkpoints(host: Host) -> Any:
    """The same model as `host.build()`, with gradient checkpointing on."""
    if host.name == "ldm1":
        return ldm_unet(use_checkpoint=True)
    model: Any = host.build()
    model.enable_gradient_checkpointing()
    return model


CHECKPOINTED = [
    host for host in ZOO if getattr(host.build(), "_supports_gradient_checkpointing", False) or host.name == "ldm1"
]
over_checkpointed = pytest.mark.parametrize("host", CHECKPOINTED, ids=str)
# ldm's own checkpoint asks for autocast on a GPU, in the way of years ago.
ldm_checkpoint_warns = pytest.mark.filterwarnings(
    r"ignore:torch.get_autocast_gpu_dtype\(\) is deprecated:DeprecationWarning",
    r"ignore:`torch.cuda.amp.autocast\(args...\)` is deprecated:FutureWarning",
    r"ignore:User provided device_type of 'cuda', but CUDA is not available:UserWarning",
)


def patched_gradients(host: Host, model: nn.Module, kind: type, inputs: list[dict[str, Any]]) -> list[Tensor]:
    with todome.apply(model, reduced_everywhere(kind, host)):
        return gradients(model, inputs)


@ldm_checkpoint_warns
@both
@over_checkpointed
def test_gradient_checkpointing_gives_equal_gradients(host: Host, kind: type):
    inputs = [host.inputs()]
    plain = patched_gradients(host, host.build(), kind, inputs)
    torch.testing.assert_close(patched_gradients(host, with_checkpoints(host), kind, inputs), plain)
    assert not torch.allclose(plain[0], gradients(host.build(), inputs)[0], rtol=1e-3)


def rng_states() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


@over_zoo
@pytest.mark.parametrize("reduction", [Downsample(factor=2), Downsample(factor=2, phase="random"), Merge()], ids=str)
def test_the_global_generators_are_untouched(host: Host, reduction: Any):
    target = host.build()
    before = rng_states()
    with todome.apply(target, reduction):
        host.run(target)
        host.run(target)
    assert rng_states() == before


# ----------------------------------------------------------------------------------------------- 6. copying and saving


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
    assert torch.equal(host.run(twin), expected)
    patch.at(4, 10)  # the copy's clock is its own
    assert torch.equal(host.run(twin), expected)
    patch.at(3, 10)
    todome.remove(twin)
    assert torch.equal(host.run(twin), dense)
    assert not any(hooks for _, hooks in hook_tables(twin))
    assert torch.equal(host.run(target), expected)


@pytest.mark.parametrize(("copied", "kind"), [(copy.deepcopy, Downsample), (pickled, Merge)])
@over_zoo
def test_a_copy_stays_reduced_and_stands_alone(host: Host, kind: type, copied: Callable[[Any], Any]):
    assert_copy_stands_alone(host, kind, copied)


@pytest.mark.parametrize(("copied", "kind"), [(copy.deepcopy, Merge), (pickled, Downsample)])
@among("sd1", "svd", "ldm1-wrapped")
def test_copies_the_other_way_around(host: Host, kind: type, copied: Callable[[Any], Any]):
    assert_copy_stands_alone(host, kind, copied)


@both
@among("sd1", "svd", "pixart", "ldm1-wrapped", "sgm")
def test_torch_save_keeps_the_reduction(host: Host, kind: type):
    assert_copy_stands_alone(host, kind, saved)


@over_zoo
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


FROM_DIFFUSERS = [host for host in ZOO if isinstance(host.build(), ModelMixin)]


@pytest.mark.parametrize("host", FROM_DIFFUSERS, ids=str)
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
    assert torch.equal(picture(pipe), dense)


# -------------------------------------------------------------------------------- 7. every way of calling, every dtype


def run_by_position(target: Any, inputs: dict[str, Any]) -> Tensor:
    call = inspect.signature(model_of(target).forward).bind(**inputs)
    call.apply_defaults()
    assert len(call.args) >= len(inputs) - 2
    with torch.no_grad():
        output = model_of(target)(*call.args, **call.kwargs)
    return torch.cat([tensor.flatten() for tensor in tensors_in(output)])


@both
@over_zoo
def test_calls_by_keyword_and_by_position_agree(host: Host, kind: type):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    patch.at(3, 10)
    expected = host.run(target).flatten()
    assert torch.equal(run_by_position(target, host.inputs()), expected)
    assert not torch.equal(expected, host.run(host.build()).flatten())


@pytest.mark.parametrize(
    "timestep",
    [500, 500.0, torch.tensor(500), torch.tensor(500.0), torch.tensor([500]), torch.full((2,), 500)],
    ids=["int", "float", "0-d", "0-d float", "one", "batched"],
)
@among("sd1", "sdxl", "controlnet")
def test_timesteps_of_every_form(host: Host, timestep: Any):
    target = host.build()
    expected = reduced(host, target, Downsample)
    with todome.apply(target, reduced_everywhere(Downsample, host)) as patch:
        patch.at(3, 10)
        assert torch.equal(host.run(target, timestep=timestep), expected)


def hidden_right_half(grid: tuple[int, int]) -> Tensor:
    """True where a token may be seen. (1, tokens)"""
    visible = torch.ones(1, *grid, dtype=torch.bool)
    visible[..., grid[1] // 2 :] = False
    return visible.flatten(1)


MASKS: dict[str, Callable[[Tensor], dict[str, Tensor]]] = {
    "sd1": lambda visible: {"attention_mask": visible.logical_not().float()[:, None] * -1e9},
    "pixart": lambda visible: {"attention_mask": visible.logical_not().float()[:, None] * -1e9},
    "ldm1": lambda visible: {"mask": visible},
}


@both
@among(*MASKS)
def test_a_mask_on_self_attention_goes_on_hiding_tokens(host: Host, kind: type):
    target, grid = host.build(), host.grids[0]
    attention = next(module for name, module in target.named_modules() if is_image_attention(name))
    visible = hidden_right_half(grid)
    todome.apply(target, Downsample(factor=2) if kind is Downsample else Merge()).at(3, 10)
    host.run(target)  # so that the grid is known
    x = noise(1, grid[0] * grid[1], attention.to_q.in_features)
    changed = torch.where(visible[..., None], x, x + 1)
    with torch.no_grad():
        before, after = (attention(tokens, **MASKS[host.name](visible))[visible] for tokens in (x, changed))
        unmasked = attention(changed)[visible]
    assert torch.equal(before, after)
    assert not torch.allclose(unmasked, after, atol=1e-4)


def test_a_mask_can_be_given_to_the_whole_model():
    """One level of attention: diffusers passes the same mask to all of them."""
    flat_unet = small_unet(
        block_out_channels=(8,), down_block_types=("CrossAttnDownBlock2D",), up_block_types=("CrossAttnUpBlock2D",)
    )
    mask = hidden_right_half((16, 18)).expand(2, -1)
    patch = todome.apply(flat_unet, Downsample(factor=2))
    patch.at(0, 10)
    masked = run(flat_unet, **unet_inputs(), attention_mask=mask)
    unmasked = run(flat_unet, **unet_inputs(), attention_mask=torch.ones_like(mask))
    assert torch.equal(unmasked, run(flat_unet, **unet_inputs()))
    assert not torch.allclose(masked, unmasked, atol=1e-4)


def cast(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return tree_map(lambda x: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x, inputs)


CASTABLE = [host for host in ZOO if not host.name.startswith("ldm")]  # ldm casts to its own dtype and wants autocast


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@both
@pytest.mark.parametrize("host", CASTABLE, ids=str)
def test_half_precision_is_close_to_single(host: Host, kind: type, dtype: torch.dtype):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host, **({"random": False} if kind is Merge else {})))
    patch.at(3, 10)
    single = host.run(target)
    target.to(dtype)
    half = run(target, **cast(host.inputs(), dtype))
    assert half.dtype == dtype
    assert (half.float() - single).abs().mean() < 0.1 * single.abs().mean()


@both
@over_zoo
def test_autocast_reduces_as_well(host: Host, kind: type):
    target = host.build()
    dense = image_keys(host, target)
    todome.apply(target, reduced_everywhere(kind, host))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = image_keys(host, target)
    assert all(seen[name] < keys for name, keys in dense.items())


@both
@among("sd1", "sdxl", "svd", "pixart", "ldm2", "sgm")
def test_inference_mode_and_then_training_on_one_patch(host: Host, kind: type):
    target = host.build()
    patch = todome.apply(target, reduced_everywhere(kind, host))
    with torch.inference_mode():
        patch.at(3, 10)
        host.run(target)
    trained = gradients(model_of(target), [host.inputs()])
    patch.remove()
    fresh = todome.apply(target, reduced_everywhere(kind, host))
    fresh.at(3, 10)
    torch.testing.assert_close(trained, gradients(model_of(target), [host.inputs()]))


@both
@among("sd1", "ldm1")
def test_applied_inside_inference_mode(host: Host, kind: type):
    target = host.build()
    with torch.inference_mode():
        patch = todome.apply(target, reduced_everywhere(kind, host))
        patch.at(3, 10)
        expected = host.run(target)
    patch.at(4, 10)
    patch.at(3, 10)
    gradients(model_of(target), [host.inputs()])
    assert torch.equal(host.run(target), expected)


@both
@over_zoo
def test_odd_batch_sizes(host: Host, kind: type):
    target = host.build()
    dense = run(target, **host.inputs(3))
    patch = todome.apply(target, reduced_everywhere(kind, host))
    assert not torch.allclose(run(target, **host.inputs(3)), dense, atol=1e-4)
    assert set(host.grids) == {grid for level in patch.levels for grid in level.grids}


@over_zoo
def test_print_works_on_a_meta_device(host: Host):
    target = host.build()
    model_of(target).to("meta")
    patch = todome.apply(target, reduced_everywhere(Downsample, host))
    assert str(patch).count("not called yet") == host.levels
    inputs = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, host.inputs())
    assert run(target, **inputs).is_meta
    assert str(patch).count(" -> ") == host.levels
    assert repr(model_of(target))
