"""A LoRA learns with attention on fewer tokens, and its file draws what the trained UNet draws."""

import math
from typing import Any

import pytest
import torch
from diffusers import DDPMScheduler
from torch import nn
from zoo import noise, recording

from todome import Downsample, Merge
from todome.hooks.modules import clocks_on
from todome.tools.pipelines import open_pipeline
from todome.tools.training.latents import Batch
from todome.tools.training.learning import loss_of, train_step
from todome.tools.training.lora import Samples, train
from todome.tools.training.weights import trainable_parameters

CPU = torch.device("cpu")


def weights_of(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in trainable_parameters(trainer.unet).items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def gradients_of_two_steps(trainer: Any) -> list[dict[str, torch.Tensor]]:
    """What the optimiser is given."""
    found = []

    def note(*_: Any) -> None:
        found.append({name: weight.grad.clone() for name, weight in trainable_parameters(trainer.unet).items()})  # pyright: ignore

    trainer.optimiser.register_step_pre_hook(note)
    for _ in range(2):
        trainer.take_step()
    return found


@pytest.mark.parametrize(
    ("model", "reduction"),
    [("tiny", Downsample(2, phase="random")), ("todome-flowers", Merge(0.5))],
    ids=["tiny-Downsample", "todome-flowers-Merge"],
)
def test_checkpointing_gives_equal_gradients(recipe, trainer, tiny, model, reduction):
    asked = {"reduction": reduction, "steps": 2, "batch": 1, "learning_rate": 0.01}
    asked["model"] = tiny if model == "tiny" else model
    plain, frugal = trainer(recipe(**asked)), trainer(recipe(**asked, checkpointing=True))
    expected = gradients_of_two_steps(plain)
    assert all(any(gradient.any() for gradient in step.values()) for step in expected)
    assert all(map(same, gradients_of_two_steps(frugal), expected))
    assert same(weights_of(frugal), weights_of(plain))


def test_all_batches_of_a_step_keep_the_same_keys_until_the_window_closes(recipe, trainer, photos):
    for colour in ("yellow", "pink"):  # only squares are left
        (photos / f"{colour}.png").unlink()
    one = trainer(recipe(reduction=Downsample(2, phase="random", stop=0.75), steps=4, accumulate=2))
    steps = []
    for _ in range(4):
        with recording(one.unet) as record:
            one.take_step()
        steps.append(record.rows)
    assert [[len(batch) for batch in step] for step in steps] == [[64, 64]] * 3 + [[256, 256]]
    assert all(step[0] == step[1] for step in steps)
    assert len({str(step) for step in steps}) > 2


def test_it_learns(recipe, trainer, photos):
    """The error on noise it has seen falls where it learns, and only there."""
    one = trainer(recipe(model="todome-flowers", learning_rate=3e-3, steps=6, rank=4))
    before = {name: weight.clone() for name, weight in one.unet.named_parameters() if not weight.requires_grad}
    first = loss_of(one.unet, one.schedule, *one.batch(0)).item()
    for _ in range(6):
        one.take_step()
    assert loss_of(one.unet, one.schedule, *one.batch(0)).item() < 0.9 * first
    assert all(torch.equal(weight, before[name]) for name, weight in one.unet.named_parameters() if name in before)


class Oracle(nn.Module):
    """Predicts what it should, for it knows the pictures."""

    def __init__(self, schedule: Any, latents: torch.Tensor) -> None:
        super().__init__()
        self.schedule, self.latents = schedule, latents

    def forward(self, noisy: torch.Tensor, timesteps: torch.Tensor, text: torch.Tensor, return_dict: bool) -> Any:
        signal = self.schedule.alphas_cumprod[timesteps].view(-1, 1, 1, 1)
        e = (noisy - signal.sqrt() * self.latents) / (1 - signal).sqrt()
        velocity = signal.sqrt() * e - (1 - signal).sqrt() * self.latents
        return (e if self.schedule.config.prediction_type == "epsilon" else velocity,)


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_the_loss_is_that_of_what_the_model_predicts(prediction):
    schedule, latents = DDPMScheduler(prediction_type=prediction), noise(3, 4, 8, 8)
    batch = Batch(latents, noise(3, 7, 16), {})

    def loss(known: torch.Tensor) -> float:
        return loss_of(Oracle(schedule, known), schedule, batch, torch.Generator().manual_seed(1)).item()

    assert loss(latents) < 1e-6
    assert loss(latents + 1) > 1e-3


class Convolution(nn.Module):
    """The smallest that can be called like a UNet."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 1)

    def forward(self, noisy: torch.Tensor, timesteps: torch.Tensor, text: torch.Tensor, return_dict: bool) -> Any:
        return (self.layer(noisy),)


def test_a_step_of_two_batches_is_that_of_their_mean(monkeypatch):
    """For loops of one's own: `train_step` needs neither a trainer nor accelerate."""
    monkeypatch.setattr("todome.tools.training.learning.MAX_NORM", math.inf)
    unet, schedule = Convolution(), DDPMScheduler()
    start = {name: part.clone() for name, part in unet.state_dict().items()}
    batches = [Batch(noise(2, 4, 8, 8, seed=seed), noise(2, 7, 16), {}) for seed in range(2)]

    def stepped(*numbers: int) -> dict[str, torch.Tensor]:
        unet.load_state_dict(start)
        pairs = [(batches[i], torch.Generator().manual_seed(i)) for i in numbers]
        train_step(unet, schedule, torch.optim.SGD(unet.parameters(), lr=0.01), pairs)
        return {name: part.clone() - start[name] for name, part in unet.state_dict().items()}

    both, first, second = stepped(0, 1), stepped(0), stepped(1)
    for name in both:
        torch.testing.assert_close(both[name], (first[name] + second[name]) / 2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("model", "alpha"), [("todome-flowers", None), ("tiny", 3.0)])
def test_the_file_draws_what_the_trained_unet_draws(recipe, trainer, tiny, tmp_path, model, alpha):
    name = tiny if model == "tiny" else model
    one = trainer(recipe(model=name, alpha=alpha, learning_rate=0.1, steps=2))
    for _ in range(2):
        one.take_step()
    one.write(tmp_path / "a.safetensors")
    (tmp_path / "usual").touch()
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode
    pipe = open_pipeline(name, "cpu", "float32")
    width = pipe.unet.config.cross_attention_dim
    inputs = (noise(1, 4, 16, 16), torch.tensor([500]), noise(1, 7, width))
    with torch.no_grad():
        base = pipe.unet(*inputs).sample
        pipe.load_lora_weights(str(tmp_path / "a.safetensors"))
        loaded = pipe.unet(*inputs).sample
        one.patch.remove()
        trained = one.unet(*inputs).sample
    torch.testing.assert_close(loaded, trained, rtol=1e-4, atol=1e-4)
    assert (loaded - base).abs().max() > 0.01


def test_dense_training_has_no_hooks(recipe, trainer):
    one = trainer(recipe(reduction=None))
    one.take_step()
    assert not clocks_on(one.unet)


def test_pictures_and_their_mirrors(recipe, trainer):
    one = trainer(recipe(flip=True))
    assert len(one.pictures) == 8
    assert len(one.fingerprints) == 4
    assert sorted(map(len, one.buckets)) == [2, 2, 4]


def test_half_precision_learns_in_full(recipe, trainer, tmp_path):
    one = trainer(recipe(precision="bf16", learning_rate=0.1))
    before = weights_of(one)
    one.take_step()
    one.draw(Samples(["a tulip"], steps=1, reduction=Downsample(2)), tmp_path)
    assert one.unet.dtype == one.pipe.vae.dtype == torch.bfloat16
    assert {weight.dtype for weight in weights_of(one).values()} == {torch.float32}
    assert not same(weights_of(one), before)
    assert [path.name for path in tmp_path.glob("*.png")] == ["000001-1.png"]


def test_a_scaled_loss_gives_the_same_step():
    """As fp16 needs it, on whose small gradients the scale is what saves them."""
    schedule, batch = DDPMScheduler(), Batch(noise(2, 4, 8, 8), noise(2, 7, 16), {})
    steps = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=1024.0)):
        torch.manual_seed(0)
        unet = Convolution()
        before = unet.layer.weight.detach().clone()
        optimiser = torch.optim.SGD(unet.parameters(), lr=0.1)
        pairs, precision = [(batch, torch.Generator().manual_seed(0))], "fp16" if scaler else "no"
        train_step(unet, schedule, optimiser, pairs, precision=precision, scaler=scaler)
        steps.append(unet.layer.weight.detach() - before)
    torch.testing.assert_close(steps[1], steps[0], rtol=0.02, atol=1e-4)


def test_the_global_generator_is_left_alone(recipe, trainer):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trainer(recipe()).take_step()
    assert torch.equal(torch.rand(3), expected)


def test_a_loss_that_is_no_number_ends_the_training(recipe, tmp_path, says):
    asked = recipe(learning_rate=1e30, steps=5)
    allowed = "Allowed: a rate at which the loss stays a number."
    remedy = "It is nan in step 2: lower the rate, or use another precision than fp16."
    with says(ValueError, f"learning_rate=1e+30 cannot be used. {allowed} {remedy}"):
        train(asked, tmp_path / "a.safetensors", save_every=1, cpu=True)
    assert [path.name for path in (tmp_path / "a-run/checkpoints").iterdir()] == ["000001"]
    assert not (tmp_path / "a.safetensors").exists()
