"""The zoo's pipelines are given embeddings; a command has words."""

from typing import Any

import todome_flowers
from diffusers import DiffusionPipeline
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from .models import WIDTH, lively


def talking(pipe: DiffusionPipeline) -> Any:
    """A tiny pipeline with a text encoder, so that it takes a prompt."""
    words = CLIPTokenizer.from_pretrained(todome_flowers.path() / "tokenizer", local_files_only=True)
    sizes: Any = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPTextConfig(vocab_size=len(words), eos_token_id=words.eos_token_id, **sizes)
    pipe.register_modules(tokenizer=words, text_encoder=lively(lambda: CLIPTextModel(config)))
    return pipe
