"""Training of the autoencoder goes on where it was cut."""

import autoencoder
import checkpoints
import torch
from photos import cut, load_photos
from runs import state_of
from torch import Tensor


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
