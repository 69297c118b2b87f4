"""The zoo: hosts and pipelines, real classes with tiny random weights, made without downloads.

What todome itself believes is not asked here: the tests compare the two.
"""

from .hosts import ZOO, Host, host_named, reduced_everywhere
from .inputs import TEXT, controlnet_inputs, noise, text, unet_inputs
from .models import (
    WIDTH,
    LatentDiffusion,
    controlnet,
    latent_diffusion,
    ldm_unet,
    lively,
    mini_sdxl,
    mini_unet,
    model_of,
    one_level_unet,
    run,
    small_unet,
    two_levels_unet,
)
from .pipelines import SIDE, ddim, draw, picture, tiny_pipeline, tiny_vae
from .plans import plan_for_all, plan_of, planned
from .speech import talking
from .watching import image_keys, is_image_attention, phase_of, recorded, recording, token_counts, token_state

__all__ = [
    "SIDE",
    "TEXT",
    "WIDTH",
    "ZOO",
    "Host",
    "LatentDiffusion",
    "controlnet",
    "controlnet_inputs",
    "ddim",
    "draw",
    "host_named",
    "image_keys",
    "is_image_attention",
    "latent_diffusion",
    "ldm_unet",
    "lively",
    "mini_sdxl",
    "mini_unet",
    "model_of",
    "noise",
    "one_level_unet",
    "phase_of",
    "picture",
    "plan_for_all",
    "plan_of",
    "planned",
    "recorded",
    "recording",
    "reduced_everywhere",
    "run",
    "small_unet",
    "talking",
    "text",
    "tiny_pipeline",
    "tiny_vae",
    "token_counts",
    "token_state",
    "two_levels_unet",
    "unet_inputs",
]
