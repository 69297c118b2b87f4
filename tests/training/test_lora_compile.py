"""A compiled training is the eager one; each bucket is one graph, which samples on the way leave alone."""

from functools import partial
from typing import Any

import torch
from torch._dynamo.testing import CompileCounterWithBackend
from zoo import mini_unet, talking, tiny_pipeline

from todome.tools.training.lora import Samples
from todome.tools.training.trainer import Trainer
from todome.tools.training.weights import trainable_parameters


def trained(trainer: Trainer, folder: Any) -> dict[str, torch.Tensor]:
    """Two steps, samples, and two more."""
    for step in range(4):
        trainer.take_step()
        if step == 1:
            trainer.draw(Samples(["a tulip"], steps=1), folder)
    return {name: weight.detach().clone() for name, weight in trainable_parameters(trainer.unet).items()}


def test_a_compiled_training_is_the_eager_one(recipe, trainer, photos, tmp_path, monkeypatch):
    for colour in ("yellow", "pink"):  # only squares are left
        (photos / f"{colour}.png").unlink()
    talking(tiny_pipeline(unet=mini_unet())).save_pretrained(tmp_path / "mini")
    asked: dict[str, Any] = {"model": str(tmp_path / "mini"), "steps": 4, "batch": 1}
    expected = trained(trainer(recipe(**asked)), tmp_path)
    tracer = CompileCounterWithBackend("eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=tracer))
    compiled = trained(trainer(recipe(**asked, compile=True)), tmp_path)
    assert tracer.frame_count == 1
    for name, weight in expected.items():
        torch.testing.assert_close(compiled[name], weight, rtol=1e-4, atol=1e-6)
    torch._dynamo.reset()
