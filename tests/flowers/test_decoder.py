"""The decoder learns from what the UNet writes, and goes on where it was cut."""

import checkpoints
import decoder
import torch
from diffusion import Trainer
from models import make_autoencoder
from runs import state_of


def test_the_decoder_learns_alone_and_goes_on_where_it_was_cut(run, photos, lpips, monkeypatch):
    monkeypatch.setattr(decoder, "SIDE", 32)
    before = checkpoints.read_weights(run, "vae")
    for iterations in (1, 2):
        vae = make_autoencoder()
        vae.load_state_dict(before)
        decoder.train(decoder.Lessons(Trainer(run, "cpu"), vae, photos, 2), lpips, run, iterations)
        assert state_of(run, "decoder")["iteration"] == iterations
    after = checkpoints.read_weights(run, "vae")
    assert {name.split(".")[0] for name in before if not before[name].equal(after[name])} == {"decoder"}


def test_latents_with_little_noise_are_given_back(run):
    class Knowing(torch.nn.Module):
        """A network that knows the latents, all ones."""

        def forward(self, x, t, words, return_dict):
            at = trainer.path.at(t)
            return (at.velocity_of_noise * (x - at.signal) / at.noise - at.velocity_of_latents,)

    trainer = Trainer(run, "cpu")
    trainer.unet = Knowing()
    tokens = torch.zeros(3, 77, dtype=torch.long)
    made = decoder.rewritten(trainer, torch.ones(3, 4, 8, 8), tokens)
    assert (made - 1).abs().max() < 1e-3
