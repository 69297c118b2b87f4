"""Latents are in the scale in which the pipeline decodes them, whatever its autoencoder is."""

import torch
from lora_photos import SHAPES
from PIL import Image
from zoo import noise

from todome.tools.training.dataset import Example
from todome.tools.training.latents import encode_picture, latents_of

CPU = torch.device("cpu")


def test_latents_are_what_the_pipeline_decodes(flowers, photos):
    example = Example(photos / "red.png", "a red tulip", SHAPES["red"])
    with torch.no_grad():
        batch = encode_picture(flowers, example, (96, 96), CPU)
        mirrored = encode_picture(flowers, example._replace(mirrored=True), (96, 96), CPU)
        decoded, turned = (flowers.vae.decode(one.latents).sample for one in (batch, mirrored))
    with Image.open(photos / "red.png") as picture:
        wanted = flowers.image_processor.preprocess(picture)
    assert (decoded - wanted).square().mean() < 0.01
    assert (turned.flip(-1) - wanted).square().mean() < 0.01
    assert (turned - wanted).square().mean() > 0.1


def test_latents_of_a_distribution_are_its_middle_in_the_scale_of_the_unet(pipe):
    pixels = noise(1, 3, 16, 16)
    with torch.no_grad():
        latents = latents_of(pipe.vae, pixels)
        expected = pipe.vae.encode(pixels).latent_dist.mean * 0.18215
    assert torch.equal(latents, expected)
