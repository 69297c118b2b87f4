"""Training of the autoencoder, the UNet and the text encoder: rates, prompts, and going on where it was cut."""

import argparse
import json
import math
from pathlib import Path
from types import SimpleNamespace

import autoencoder
import checkpoints
import diffusion
import export
import pytest
import torch
from diffusion import Prompts, Trainer
from models import make_tokenizer
from photos import cut, load_photos
from prepared import read_prompts
from runs import ITERATIONS, STAGES, logged, state_of
from torch import Tensor
from words import vocabulary

pytestmark = pytest.mark.xdist_group("trained")  # what they share is made once


def begun(run: Path) -> Trainer:
    """As every start of the program begins."""
    torch.manual_seed(0)
    trainer = Trainer(run, "cpu")
    trainer.resume()
    return trainer


def train_until(trainer: Trainer, photos: Path, iteration: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train with a clock that counts iterations, and leave as the program does when its time is up."""
    monkeypatch.setattr(diffusion, "time", SimpleNamespace(monotonic=lambda: trainer.iteration))
    diffusion.train(trainer, STAGES, photos, deadline=iteration - 0.5)
    trainer.save()


@pytest.mark.thorough
def test_it_goes_on_where_it_was_cut_and_nothing_is_lost(run, photos, monkeypatch):
    first = begun(run)
    untrained = [p.detach().clone() for p in first.parameters]
    train_until(first, photos, 4, monkeypatch)
    second = begun(run)
    assert second.iteration == 4
    kept, found = ([*one.parameters, *one.average, one.optimisers] for one in (first, second))
    assert all(x.equal(y) for x, y in zip(kept[:-1], found[:-1], strict=True))
    for one, other in zip(kept[-1], found[-1], strict=True):
        torch.testing.assert_close(other.state_dict()["state"], one.state_dict()["state"], rtol=0, atol=0)
    averaged = iter(first.average)
    for name in ("unet", "text_encoder"):
        weights = checkpoints.read_weights(run, name)
        assert all(weights[key].equal(next(averaged)) for key, _ in getattr(first, name).named_parameters())
    for _ in range(2):  # the second time there is nothing to do
        train_until(second, photos, math.inf, monkeypatch)
        state = state_of(run)
        assert state["iteration"] == ITERATIONS
        assert {int(entry["step"]) for entry in state["optimisers"][1]["state"].values()} == {ITERATIONS}
    assert not any(p.equal(q) for p, q in zip(untrained, second.parameters, strict=True)), "every parameter learns"


def test_a_folder_with_weights_alone_is_begun_with_them(run, photos, monkeypatch):
    monkeypatch.setattr(diffusion, "LOG_EVERY", 2)
    train_until(begun(run), photos, math.inf, monkeypatch)
    assert [(line["stage"], line["iteration"]) for line in logged(run)] == [("small", 2), ("mixed", 4)]
    (run / "diffusion.state").unlink()
    trainer = begun(run)
    assert trainer.iteration == 0
    for average, parameter in zip(trainer.average, trainer.parameters, strict=True):
        assert average.equal(parameter)
        assert average.data_ptr() != parameter.data_ptr()
    weights = checkpoints.read_weights(run, "unet")
    assert all(weights[name].equal(value) for name, value in trainer.unet.state_dict().items())


def test_a_resumed_run_draws_noise_of_its_own(run):
    first = begun(run)
    drawn = torch.rand(4)
    first.iteration = 2
    first.save()
    begun(run)
    resumed = torch.rand(4)
    assert not resumed.equal(drawn)
    begun(run)
    assert resumed.equal(torch.rand(4))  # and the same one every time


def test_prompts_of_a_batch_are_captions_or_empty(ready):
    tokenizer, rows = make_tokenizer(vocabulary()), read_prompts(ready)
    torch.manual_seed(0)
    prompts = Prompts(rows, tokenizer, "cpu")
    tokens = prompts.of(torch.full((500,), 2))
    empty = (tokens == prompts.empty).all(dim=1)
    assert 0.05 < empty.double().mean() < 0.15
    captions = {tuple(row) for row in rows[2].tolist()}
    assert all(tuple(row[: rows.shape[2]]) in captions for row in tokens[~empty].tolist())
    assert tokens[:, rows.shape[2] :].unique().tolist() == [tokenizer.eos_token_id]


def test_the_rate_warms_up_and_falls():
    shares = [diffusion.share_at(i, 1000) for i in range(1000)]
    rising, falling = shares[: diffusion.WARM_UP], shares[diffusion.WARM_UP :]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert 0 < rising[0] < falling[0] < 1
    assert shares[-1] == pytest.approx(0.001)


def test_stages_as_the_command_line_asks_for_them():
    stages = diffusion.asked_stages(argparse.Namespace(iterations=[1, 2, 3], share=0.001))
    assert [stage.iterations for stage in stages] == [1, 2, 3]
    assert {size.batch for stage in stages for size in stage.sizes} == {1}


def test_a_run_has_its_own_unet_and_the_pipeline_too(tmp_path):
    second = json.loads((Path(diffusion.__file__).parent / "second-unet.json").read_text())
    small = second | {"block_out_channels": [8, 16, 16], "norm_num_groups": 4, "attention_head_dim": 2}
    (tmp_path / "unet.json").write_text(json.dumps(small))
    trainer = Trainer(tmp_path, "cpu")
    trainer.save()
    checkpoints.write_weights(tmp_path, "vae", export.make_autoencoder().state_dict())
    unet = export.assemble(tmp_path).unet
    assert unet.config.block_out_channels == [8, 16, 16]
    assert all(a.equal(b) for a, b in zip(unet.parameters(), [p.half() for p in trainer.average], strict=False))


def test_the_autoencoder_goes_on_where_it_was_cut(run, photos, closeness, monkeypatch):
    seen: list[Tensor] = []
    monkeypatch.setattr(autoencoder, "CUT", 32)
    monkeypatch.setattr(
        autoencoder, "cut_for_training", lambda chosen: seen.append(cut(chosen, 32, 32, 1.5)) or seen[-1]
    )
    pictures = load_photos(sorted(photos.glob("*/*")))
    for name in ("autoencoder.state", "vae.safetensors"):
        (run / name).unlink()
    for iterations in (2, 4):
        torch.manual_seed(0)
        autoencoder.train(pictures, closeness, run, iterations, batch=2)
        assert state_of(run, "autoencoder")["iteration"] == iterations
    assert len(seen) == 4
    assert not seen[0].equal(seen[2])  # cuts of its own, not those of the beginning
    weights = checkpoints.read_weights(run, "vae")
    assert all(weights[name].equal(value) for name, value in state_of(run, "autoencoder")["vae"].items())
