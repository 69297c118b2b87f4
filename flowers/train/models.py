"""The five parts of the pipeline, untrained: the structure of Stable Diffusion, fifty times smaller."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from diffusers import AutoencoderTiny, DPMSolverMultistepScheduler, UNet2DConditionModel
from tokenizers import Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

TOKENS = 77  # CLIP's length of a prompt
TEXT_CHANNELS = 128
SPECIAL = ("<|startoftext|>", "<|endoftext|>")


def make_tokenizer(words: Iterable[str]) -> CLIPTokenizer:
    """CLIP's byte-level BPE with a vocabulary so small that each of `words` is one token; others fall into pieces."""
    trained = Tokenizer(BPE(end_of_word_suffix="</w>"))
    trained.pre_tokenizer = pre_tokenizers.Whitespace()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    single = [*letters, *(letter + "</w>" for letter in letters)]
    options: Any = {"end_of_word_suffix": "</w>", "min_frequency": 0, "show_progress": False}
    # Told the letters, it breaks ties by their order; left to find them, at random, and every run numbers words anew.
    trainer = trainers.BpeTrainer(vocab_size=10**6, special_tokens=single, **options)
    trained.train_from_iterator(words, trainer)
    merges: Any = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    pieces = [*single, *("".join(pair) for pair in merges), *SPECIAL]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=TOKENS)


def make_text_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    special: Any = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=TEXT_CHANNELS,
            intermediate_size=4 * TEXT_CHANNELS,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=TOKENS,
            projection_dim=TEXT_CHANNELS,
            **special,
        )
    )


def make_unet(**changes: Any) -> UNet2DConditionModel:
    config: dict[str, Any] = {
        "sample_size": 64,  # 256 px: 4096 tokens at level 1, as SD 1.5 has at 512 px
        "block_out_channels": (64, 128, 192),
        "down_block_types": ("CrossAttnDownBlock2D",) * 3,
        "up_block_types": ("CrossAttnUpBlock2D",) * 3,
        "attention_head_dim": (4, 4, 6),  # the number of heads, in spite of its name
        "cross_attention_dim": TEXT_CHANNELS,
    }
    return UNet2DConditionModel(**config | changes)


def unet_changes(run: Path | None) -> dict[str, Any]:
    """Fields of the UNet that a run has others of, from its file unet.json, where it has one."""
    path = run and run / "unet.json"
    return json.loads(path.read_text()) if path and path.is_file() else {}


def make_autoencoder() -> AutoencoderTiny:
    """4x smaller in height and width, 4 channels."""
    return AutoencoderTiny(
        encoder_block_out_channels=(64, 64, 64),
        decoder_block_out_channels=(64, 64, 64),
        num_encoder_blocks=(1, 3, 3),
        num_decoder_blocks=(3, 3, 2),
        latent_channels=4,
    )


def make_scheduler() -> DPMSolverMultistepScheduler:
    """Stable Diffusion's betas; the noise is trained on these, and any scheduler of diffusers can take its place."""
    return DPMSolverMultistepScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="v_prediction",
        timestep_spacing="trailing",
        steps_offset=1,  # what Stable Diffusion has; other spacings need it
    )
