"""A pipeline from a single checkpoint file; LoRAs and another VAE in a pipeline."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ...errors import invalid_value
from ..quiet import quiet_loading
from .configs import pipeline_configs, prediction_type, write_configs
from .header import Header, read_header
from .kinds import CHECKPOINTS, LORA, REFINER, SD2, VAE, Kind, kind_of

OPENED = "a checkpoint of Stable Diffusion 1.x, 2.x or XL that draws from text"
CHANNELS = {
    9: "an inpainting checkpoint",
    8: "a checkpoint that edits pictures",
    5: "a checkpoint that draws from depth",
}
PROBE = 32  # latents on a side of what the UNet is asked about


def check_checkpoint(path: Path) -> tuple[Header, Kind]:
    """The header and the kind of a checkpoint; what cannot be opened is refused by name of what was found."""
    header = read_header(path)
    kind = kind_of(header)
    if kind not in CHECKPOINTS or kind is REFINER:
        raise invalid_value("model", str(path), OPENED, f"This file is {kind.name}. {kind.remedy}")
    channels = header.shapes["model.diffusion_model.input_blocks.0.0.weight"][1]
    if channels != 4:
        what = CHANNELS.get(channels, f"a checkpoint with {channels} input channels")
        raise invalid_value("model", str(path), OPENED, f"This file is {what}. Use it in Python: examples/inpaint.py")
    return header, kind


def checkpoint_configs(path: Path) -> tuple[dict[str, Any], Header, Kind]:
    """Configs of a checkpoint's parts by their names."""
    header, kind = check_checkpoint(path)
    try:
        return pipeline_configs(header, kind), header, kind
    except (IndexError, KeyError, StopIteration) as error:
        remedy = f"This file is {kind.name}, but lacks {error}. Name one with all parts"
        raise invalid_value("model", str(path), OPENED, remedy) from None


def open_checkpoint(path: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """The pipeline in a checkpoint file. Nothing is downloaded."""
    configs, header, kind = checkpoint_configs(path)
    with quiet_loading() as diffusers, TemporaryDirectory(prefix="todome-configs-") as folder:
        write_configs(Path(folder), configs, kind)
        opener = getattr(diffusers, configs[""]["_class_name"])
        try:
            pipe = opener.from_single_file(str(path), config=folder, local_files_only=True, dtype=dtype)
        except (KeyError, NotImplementedError, ValueError) as error:  # the second where some weights were not there
            remedy = f"This file is {kind.name}, but not all of its weights are in it. Name one with all parts"
            raise invalid_value("model", str(path), OPENED, remedy) from error
    pipe.to(device)
    if kind is SD2 and prediction_type(header) is None and not predicts_noise(pipe):
        pipe.scheduler.register_to_config(prediction_type="v_prediction")
        pipe.unet.register_to_config(sample_size=96)  # those of 2.x that do so were trained on 768 pixels
    return pipe


@torch.no_grad()
def predicts_noise(pipe: Any) -> bool:
    """Whether the UNet predicts noise rather than v: asked about pure noise, it then gives this back.

    The files of Stable Diffusion 2.x hold both kinds and do not say which.
    """
    words = pipe.encode_prompt("", pipe.device, 1, False)[0]
    noise = torch.randn(1, 4, PROBE, PROBE, generator=torch.Generator().manual_seed(0)).to(words)
    last = pipe.scheduler.config.num_train_timesteps - 1
    found = pipe.unet(noise, last, words).sample
    return torch.cosine_similarity(found.flatten().float(), noise.flatten().float(), dim=0).item() > 0.5


def split_weight(lora: str) -> tuple[Path, float]:
    """File and weight of `FILE[:WEIGHT]`; a colon may be part of the file's name."""
    file, _, weight = lora.rpartition(":")
    if file and not Path(lora).expanduser().exists():
        try:
            return Path(file).expanduser(), float(weight)
        except ValueError:
            pass
    return Path(lora).expanduser(), 1.0


def check_parts(loras: Sequence[str], vae: str | None) -> None:
    """Refuses files that are not what they are given for. To be asked before a model is opened."""
    for lora in loras:
        path, weight = split_weight(lora)
        check_kind(
            "lora", lora, path, (LORA,), "a LoRA as a .safetensors file, with a weight as in style.safetensors:0.8"
        )
        if not -10 <= weight <= 10:
            raise invalid_value("lora", lora, "a weight from -10 to 10", "1 is as it was trained, 0.5 is half of it")
    if vae is not None and not Path(vae).expanduser().is_dir():
        check_kind("vae", vae, Path(vae).expanduser(), (VAE, *CHECKPOINTS), "a VAE as a .safetensors file or a folder")


def check_kind(field: str, given: str, path: Path, kinds: Sequence[Kind], allowed: str) -> None:
    if not path.is_file():
        raise invalid_value(field, given, allowed, "Nothing is there: check the spelling", FileNotFoundError)
    found = kind_of(read_header(path, field))
    if found not in kinds:
        raise invalid_value(field, given, allowed, f"This file is {found.name}. Name another")


def use_vae(pipe: Any, vae: str) -> None:
    """Puts another VAE into a pipeline; it decodes with the scale of the one it replaces."""
    path, own = Path(vae).expanduser(), pipe.vae
    with quiet_loading(), TemporaryDirectory(prefix="todome-configs-") as folder:
        own.save_config(folder)
        options: dict[str, Any] = {"local_files_only": True, "dtype": own.dtype}
        try:
            if path.is_dir():
                found = type(own).from_pretrained(path, use_safetensors=True, **options)
            else:
                found = type(own).from_single_file(str(path), config=folder, **options)
        except NotImplementedError as error:
            raise does_not_fit("vae", vae, "some weights of the encoder or the decoder are not in it") from error
        except (AttributeError, KeyError, OSError, RuntimeError, ValueError) as error:
            raise does_not_fit("vae", vae, error) from error
    pipe.register_modules(vae=found.to(own.device))


def use_loras(pipe: Any, loras: Sequence[str]) -> None:
    """Adds LoRAs to the weights of a pipeline, each times its weight."""
    import peft  # noqa: F401  # where it is missing, that is said

    for number, lora in enumerate(loras):
        path, weight = split_weight(lora)
        with quiet_loading():
            try:
                options = {"weight_name": path.name, "adapter_name": f"todome_{number}", "local_files_only": True}
                pipe.load_lora_weights(str(path.parent), **options)
            except (AttributeError, KeyError, OSError, RuntimeError, ValueError) as error:
                raise does_not_fit("lora", lora, error) from error
        if not any(pipe.get_list_adapters().values()):
            raise does_not_fit("lora", lora, "no layer of this model has a name that is in it")
        pipe.fuse_lora(lora_scale=weight)
        pipe.unload_lora_weights()


def does_not_fit(field: str, given: str, reason: object) -> Exception:
    said = str(reason).strip().split("\n")[0][:200].rstrip(".")
    return invalid_value(field, given, "what was made for this kind of model", f"It does not fit: {said}")
