"""Pictures and captions as the UNet sees them: encoded once, before the training, for only the UNet learns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageOps
from torch import Tensor
from tqdm import tqdm

from ..pipelines import Size
from .dataset import Example, open_picture

ENCODERS = ("vae", "text_encoder", "text_encoder_2")


class Batch(NamedTuple):
    """Pictures of one size with their captions."""

    latents: Tensor  # (B, C, h, w)
    text: Tensor  # (B, words, width)
    added: dict[str, Tensor]  # what SDXL is given besides: text_embeds (B, width), time_ids (B, 6); else nothing


def join_batches(batches: Sequence[Batch], device: torch.device) -> Batch:
    latents, text, added = zip(*batches, strict=True)
    both = {name: torch.cat([one[name] for one in added]).to(device) for name in added[0]}
    return Batch(torch.cat(latents).to(device), torch.cat(text).to(device), both)


def encode_pictures(pipe: Any, examples: Sequence[Example], sizes: Sequence[Size], state: Any) -> list[Batch]:
    """Every picture as a batch of one, in the CPU's memory. Each process encodes its share and gets those of all.

    Args:
        pipe: Pipeline with the autoencoder and the text encoders.
        examples: Pictures with their captions.
        sizes: Size of the bucket of each picture.
        state: State of accelerate: which process this is, and on which device.
    """
    from accelerate.utils import gather_object

    own = range(state.process_index, len(examples), state.num_processes)
    own = tqdm(own, "encoding", unit="picture", disable=None if state.is_main_process else True, leave=False)
    with encoders_on(pipe, state.device):
        encoded = [(i, encode_picture(pipe, examples[i], sizes[i], state.device)) for i in own]
    by_number = dict(gather_object(encoded))
    return [by_number[i] for i in range(len(examples))]


@contextmanager
def encoders_on(pipe: Any, device: torch.device) -> Iterator[None]:
    """A pipeline with its autoencoder and text encoders on a device, which is the UNet's alone at other times."""
    parts = [part for name, part in pipe.components.items() if name in ENCODERS and part is not None]
    for part in parts:
        part.to(device)
    yield
    for part in parts:
        part.to("cpu")


@torch.no_grad()
def encode_picture(pipe: Any, example: Example, size: Size, device: torch.device) -> Batch:
    picture, corner = fit(open_picture(example.path), size)
    picture = ImageOps.mirror(picture) if example.mirrored else picture
    pixels = pipe.image_processor.preprocess(picture).to(device)  # (1, 3, H, W), from -1 to 1
    text, _, *pooled = pipe.encode_prompt(
        example.caption, device=device, num_images_per_prompt=1, do_classifier_free_guidance=False
    )
    added = {}
    if pooled:  # SDXL: sizes and corners as (height, width)
        sizes = [*reversed(example.size), *reversed(corner), *reversed(size)]
        added = {"text_embeds": pooled[0].cpu(), "time_ids": torch.tensor([sizes], dtype=torch.float32)}
    return Batch(latents_of(pipe.vae, pixels).cpu(), text.cpu(), added)


def fit(picture: Image.Image, size: Size) -> tuple[Image.Image, Size]:
    """The middle of a picture, as much of it as fits into a size; and how far from its left and top that begins."""
    scale = max(size[0] / picture.width, size[1] / picture.height)
    corner = round((picture.width * scale - size[0]) / 2), round((picture.height * scale - size[1]) / 2)
    return ImageOps.fit(picture, size, Image.Resampling.LANCZOS), corner


def latents_of(vae: Any, pixels: Tensor) -> Tensor:
    """What a pipeline would decode to these pixels. Of a distribution, the middle: it is encoded once."""
    encoded = vae.encode(pixels)
    latents = encoded.latents if hasattr(encoded, "latents") else encoded.latent_dist.mode()
    return latents * vae.config.scaling_factor
