"""SDXL has two text encoders, and is told the size and the corner of every picture."""

from typing import Any

import torch
from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline
from lora_photos import SHAPES
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModelWithProjection
from zoo import WIDTH, lively, small_unet, talking, tiny_pipeline

from todome import Downsample
from todome.tools.pipelines import open_pipeline
from todome.tools.training.dataset import Example
from todome.tools.training.latents import encode_picture
from todome.tools.training.lora import Samples, train
from todome.tools.training.metadata import reduction_in


def sdxl_pipeline() -> Any:
    """Two text encoders and their tokenizers, sizes and corners: random weights."""
    first = talking(tiny_pipeline(unet=small_unet()))
    config = CLIPTextConfig(**{**first.text_encoder.config.to_dict(), "projection_dim": WIDTH, "num_hidden_layers": 2})
    second = lively(lambda: CLIPTextModelWithProjection(config))
    blocks: Any = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "addition_embed_type": "text_time"}
    blocks |= {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "block_out_channels": (8, 16)}
    sizes: Any = {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 6 * 8 + WIDTH}
    return StableDiffusionXLPipeline(
        vae=first.vae,
        text_encoder=first.text_encoder,
        text_encoder_2=second,
        tokenizer=first.tokenizer,
        tokenizer_2=first.tokenizer,
        unet=small_unet(**blocks, **sizes, cross_attention_dim=2 * WIDTH),
        scheduler=EulerDiscreteScheduler(),  # pyright: ignore[reportArgumentType]
    )


def test_sdxl_learns_and_loads(recipe, tmp_path):
    sdxl_pipeline().save_pretrained(tmp_path / "sdxl")
    asked = recipe(model=str(tmp_path / "sdxl"), steps=1, learning_rate=0.1)
    samples = Samples(["a red tulip"], steps=1, reduction=Downsample(2))
    train(asked, tmp_path / "a.safetensors", samples=samples, cpu=True)
    with Image.open(tmp_path / "a-run/samples/000001-1.png") as picture:
        assert picture.size == (32, 32)
    pipe = open_pipeline(str(tmp_path / "sdxl"), "cpu", "float32")
    pipe.load_lora_weights(str(tmp_path / "a.safetensors"))
    assert pipe.get_active_adapters() == ["default_0"]
    assert reduction_in(tmp_path / "a.safetensors") == asked.reduction


def test_sdxl_is_told_sizes_and_corners(photos):
    pipe = sdxl_pipeline()
    example = Example(photos / "yellow.png", "a yellow tulip", SHAPES["yellow"])
    batch = encode_picture(pipe, example, (80, 56), torch.device("cpu"))  # 160x96 becomes 93x56
    assert batch.added["time_ids"].tolist() == [[96, 160, 0, 7, 56, 80]]
    assert batch.added["text_embeds"].shape == (1, 16)
    assert batch.text.shape == (1, 77, 32)
    assert batch.latents.shape == (1, 4, 28, 40)
