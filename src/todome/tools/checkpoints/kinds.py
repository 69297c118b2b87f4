"""What a .safetensors file is, by the names of its tensors."""

import re
from typing import NamedTuple

from .header import Header

UNET = "model.diffusion_model."
TRANSFORMER = "todome is for models with convolutions, and this is a transformer"
WHOLE = "Name the folder of the whole pipeline, or a checkpoint with all parts"


class Kind(NamedTuple):
    """A kind of file: a name for people, what to do with it instead, and a pattern that some name in it matches."""

    name: str
    remedy: str
    pattern: str


SD1 = Kind("Stable Diffusion 1.x", "", r"cond_stage_model\.transformer\.")
SD2 = Kind("Stable Diffusion 2.x", "", r"cond_stage_model\.model\.")
SDXL = Kind("SDXL", "", r"conditioner\.embedders\.1\.model\.")
REFINER = Kind(
    "the refiner of SDXL", "It only goes on from pictures of the base: use that", r"conditioner\.embedders\.0\.model\."
)
CHECKPOINTS = (SD1, SD2, SDXL, REFINER)
LORA = Kind(
    "a LoRA",
    "Give it to --lora, beside a --model",
    r"lora_up\.|lora_down\.|lora_[AB]\.|lora\.(up|down)\.|hada_w|lokr_w",
)
VAE = Kind(
    "a VAE", "Give it to --vae, beside a --model", r"(first_stage_model\.|vae\.)?(encoder|decoder)\.conv_(in|out)\."
)
OTHERS = (  # the first that matches is taken
    LORA,
    Kind(
        "a ControlNet",
        "Use it with diffusers: examples/controlnet.py",
        r"control_model\.|controlnet_|input_hint_block\.",
    ),
    Kind("an IP-Adapter", "Use it with diffusers: pipe.load_ip_adapter", r"(ip_adapter|image_proj)\."),
    Kind("a T2I-Adapter", "Use it with diffusers: T2IAdapter", r"(adapter\.)?body\.\d+\.(block|resnets|in_conv)"),
    Kind("a motion module of AnimateDiff", "Use it with diffusers: examples/animatediff.py", r".*motion_modules\."),
    Kind("Flux or a relative of it", TRANSFORMER, r"(.*\.)?(double_blocks|single_transformer_blocks)\."),
    Kind("Stable Diffusion 3", TRANSFORMER, r"(.*\.)?joint_blocks\."),
    Kind("a diffusion transformer", TRANSFORMER, r"(model\.diffusion_model\.)?(transformer_blocks|blocks|layers)\.\d"),
    Kind("a UNet without text encoder and VAE", WHOLE, r"model\.diffusion_model\.|input_blocks\."),
    Kind("a UNet in the layout of diffusers, one part of a pipeline", WHOLE, r"(unet\.)?down_blocks\."),
    VAE,
    Kind("a text encoder, one part of a pipeline", WHOLE, r"(text_model\.|transformer\.resblocks\.|encoder\.block\.)"),
    Kind(
        "a textual inversion, an embedding",
        "Use it with diffusers: pipe.load_textual_inversion",
        r"(emb_params|string_to_param|clip_[lg]|<.*>)$",
    ),
    Kind("an upscaler", "Use it after drawing", r"(model\.\d|body\.\d|conv_first\.|params)"),
)


def kind_of(header: Header) -> Kind:
    """What a file is; a kind without a remedy is a checkpoint that can be opened."""
    if any(header.beginning_with(f"{UNET}input_blocks.")):
        for kind in CHECKPOINTS:
            if any(re.match(kind.pattern, name) for name in header.shapes):
                return kind
    for kind in OTHERS:
        match = re.search if kind is LORA else re.match
        if any(match(kind.pattern, name) for name in header.shapes):
            return kind
    some = ", ".join(list(header.shapes)[:3])
    return Kind(f"nothing that todome knows: {len(header.shapes)} tensors, such as {some}", "Name another file", "")
