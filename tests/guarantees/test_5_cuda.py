"""What only a GPU can show: graphs that are captured and replayed, and devices that differ."""

import contextlib
import copy
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch.utils.checkpoint import checkpoint

import todome

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),  # what torch says of itself
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),  # where its capture is refused
]

REDUCTIONS = [
    todome.Downsample(factor=2),
    todome.Downsample(factor=(2, 1.5)),
    todome.Downsample(factor=2, phase="fixed"),
    todome.Downsample(factor=2, phase="random"),
    todome.Merge(ratio=(0.5, 0.5)),
]


def tiny_unet() -> Any:
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(64, 128),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=64,
    )
    return unet.eval().requires_grad_(False)


def inputs(device: str = "cuda", dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, text = torch.randn(2, 4, 32, 34, generator=generator), torch.randn(2, 7, 64, generator=generator)
    return x.to(device, dtype), torch.tensor(500, device=device), text.to(device, dtype)


def outputs(unet, patch, given, steps: int = 6) -> list[torch.Tensor]:
    results = []
    for step in range(steps):
        patch.at(step, steps)
        results.append(unet(*given).sample.clone())
    return results


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_replayed_graph_gives_the_eager_result_at_every_step(reduction):
    unet, given = tiny_unet().cuda().half(), inputs()
    patch = todome.apply(unet, reduction)
    eager = outputs(unet, patch, given)
    graph = torch.cuda.CUDAGraph()
    patch.at(0, 6)
    with torch.cuda.graph(graph):
        result = unet(*given).sample
    for step, expected in enumerate(eager):
        patch.at(step, 6)
        graph.replay()
        assert torch.equal(result, expected), f"step {step}"


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_compiled_graph_gives_the_eager_result_without_recompiling(reduction):
    torch.compiler.reset()
    unet, given = tiny_unet().cuda(), inputs(dtype=torch.float32)
    patch = todome.apply(unet, reduction)
    eager = outputs(unet, patch, given)
    compiled = torch.compile(unet, fullgraph=True)
    outputs(compiled, patch, given, steps=1)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for expected, result in zip(eager, outputs(compiled, patch, given), strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-2)
    assert getattr(reduction, "phase", None) == "fixed" or not torch.allclose(eager[0], eager[1], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_gpu_and_cpu_choose_the_same_tokens(reduction):
    on_cpu, on_gpu = tiny_unet().double(), tiny_unet().double().cuda()
    here = outputs(on_cpu, todome.apply(on_cpu, reduction), inputs("cpu", torch.float64))
    there = outputs(on_gpu, todome.apply(on_gpu, reduction), inputs("cuda", torch.float64))
    for cpu, gpu in zip(here, there, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-6, atol=1e-6)


def test_a_patched_model_can_move_between_devices():
    unet = tiny_unet()
    patch = todome.apply(unet, todome.Downsample(factor=2))
    before = outputs(unet, patch, inputs("cpu", torch.float32))
    outputs(unet.cuda(), patch, inputs("cuda", torch.float32))
    after = outputs(unet.cpu(), patch, inputs("cpu", torch.float32))
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    copied = copy.deepcopy(unet).cuda()
    assert copied(*inputs("cuda", torch.float32)).sample.is_cuda


def test_a_window_is_refused_while_a_graph_is_captured():
    unet, given = tiny_unet().cuda().half(), inputs()
    patch = todome.apply(unet, todome.Downsample(factor=2, stop=0.5))
    outputs(unet, patch, given, steps=2)
    patch.at(0, 6)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match=r"in a CUDA graph, which cannot change with the step"):  # noqa: SIM117
        with torch.cuda.graph(graph):
            unet(*given)


@pytest.mark.parametrize("reduction", [REDUCTIONS[0], REDUCTIONS[-1]], ids=str)
def test_threads_on_one_gpu_draw_what_they_draw_alone(reduction):
    unet = tiny_unet().cuda().half()
    patch = todome.apply(unet, reduction)
    sizes = [(32, 34), (24, 40), (40, 24), (34, 32)]
    jobs = [(step, torch.randn(2, 4, *size, device="cuda").half()) for step, size in enumerate(sizes)]

    def draw(job):
        step, x = job
        results = []
        for number in range(6):
            patch.at((step + number) % 6, 6)
            results.append(unet(x, torch.tensor(500, device="cuda"), inputs()[2]).sample.clone())
        return torch.stack(results)

    alone = [draw(job) for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        together = list(pool.map(draw, jobs))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_of_blocks_that_another_thread_computes_again(reentrant):
    """Backward passes on a GPU run in threads of autograd's own."""

    def gradients(checkpointed: bool) -> list[torch.Tensor]:
        unet = tiny_unet().cuda().train().requires_grad_()
        if checkpointed:
            unet.enable_gradient_checkpointing(partial(checkpoint, use_reentrant=reentrant))
        patch, loss = todome.apply(unet, todome.Downsample(factor=(2, 2))), torch.zeros((), device="cuda")
        for step in (1, 2):
            patch.at(step, 6)
            x, t, text = inputs(dtype=torch.float32)
            loss = loss + unet(x.requires_grad_(), t, text).sample.square().mean()
        patch.at(5, 6)
        loss.backward()
        return [parameter.grad for parameter in unet.parameters()]

    for again, plain in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(again, plain, rtol=1e-3, atol=1e-4)


def test_activations_offloaded_to_the_cpu_are_right_or_refused():
    def gradients(offload: bool, steps: tuple[int, ...]) -> list[torch.Tensor]:
        unet = tiny_unet().cuda().train().requires_grad_()
        unet.enable_gradient_checkpointing()
        patch, loss = todome.apply(unet, todome.Downsample(factor=(2, 2))), torch.zeros((), device="cuda")
        with torch.autograd.graph.save_on_cpu() if offload else contextlib.nullcontext():
            for step in steps:
                patch.at(step, 6)
                loss = loss + unet(*inputs(dtype=torch.float32)).sample.square().mean()
        return list(torch.autograd.grad(loss, list(unet.parameters())))

    for again, plain in zip(gradients(True, (3,)), gradients(False, (3,)), strict=True):
        torch.testing.assert_close(again, plain, rtol=1e-3, atol=1e-4)
    with pytest.raises(RuntimeError, match="cannot be told from another one"):
        gradients(True, (1, 2))
