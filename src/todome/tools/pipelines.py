"""Text-to-image pipelines of diffusers: opening the embedded one, a folder or a hub id; which sizes one can draw."""

import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import invalid_value
from .devices import explain_out_of_memory, reachable_device, torch_dtype
from .quiet import quiet_loading

EMBEDDED = "todome-flowers"
Size = tuple[int, int]  # width, height


def open_pipeline(model: str | Path = EMBEDDED, device: str = "auto", dtype: str = "auto") -> Any:
    """A text-to-image pipeline, ready to be called.

    Args:
        model: "todome-flowers" (the embedded one), the folder of a pipeline, or an id on the Hugging Face hub.
        device: "auto" takes the GPU if there is one.
        dtype: "auto" is float16 on a GPU and float32 on a CPU.
    """
    where = reachable_device(device)
    precision = torch_dtype(dtype, where)
    folder = pipeline_folder(str(model))
    with quiet_loading() as diffusers:
        try:
            pipe = diffusers.DiffusionPipeline.from_pretrained(folder, dtype=precision, local_files_only=True)
        except (OSError, ValueError) as error:
            raise invalid_value(
                "model", str(model), "a pipeline that diffusers can open", f"It says: {first_sentence(error)}"
            ) from error
    check_text_to_image(pipe, str(model))
    with explain_out_of_memory(f"{model} on {where}", "Use float16, another device, or a smaller model"):
        return pipe.to(where)


def weights_of(model: str) -> dict[str, str]:
    """Which weights the embedded model has, for results to carry; nothing of other models, whose name says it."""
    if model != EMBEDDED:
        return {}
    import todome_flowers

    return {"weights": todome_flowers.fingerprint()}


def pipeline_folder(model: str) -> str:
    """Where a pipeline lies on this machine; one that is on the hub is downloaded."""
    if model == EMBEDDED:
        import todome_flowers

        return str(todome_flowers.path())
    folder = Path(model).expanduser()
    if folder.exists():
        if not (folder / "model_index.json").is_file():
            remedy = "Name the folder that save_pretrained made"
            raise invalid_value(
                "model", model, "a folder with a model_index.json, as diffusers saves pipelines", remedy
            )
        return str(folder)
    allowed = f'"{EMBEDDED}", an existing folder, or a hub id such as "stable-diffusion-v1-5/stable-diffusion-v1-5"'
    if model.count("/") != 1 or model[0] in "/.~":
        raise invalid_value("model", model, allowed, "Nothing is there: check the spelling")
    return download(model, allowed)


def download(model: str, allowed: str) -> str:
    """Folder of a pipeline that is on the hub, which is downloaded unless it is here already."""
    from diffusers import DiffusionPipeline

    try:
        return str(DiffusionPipeline.download(model))
    except (OSError, ValueError):
        remedy = "Neither a folder here nor reachable on the hub: check the spelling and the network"
        raise invalid_value("model", model, allowed, remedy) from None


def first_sentence(error: Exception) -> str:
    return str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")


def check_text_to_image(pipe: Any, model: str) -> None:
    options = inspect.signature(pipe.__call__).parameters
    if "prompt" not in options or "num_frames" in options or denoiser(pipe) is None:
        remedy = f"{type(pipe).__name__} makes something else, or from something else"
        raise invalid_value("model", model, "a pipeline that makes a picture from a text", remedy)


def denoiser(pipe: Any) -> Any:
    return getattr(pipe, "unet", None) or getattr(pipe, "transformer", None)


def size_step(pipe: Any) -> int:
    """Number of pixels of which the sides of a pipeline's pictures must be multiples."""
    pixels = getattr(getattr(pipe, "image_processor", None), "config", {}).get("vae_scale_factor", 1)
    patch = denoiser(pipe).config.get("patch_size") or 1  # of a transformer; UNets take any latents
    return math.lcm(8, pixels * patch)  # 8 is what the pipelines of diffusers ask for, whatever their autoencoder


def check_size(pipe: Any, size: Size) -> None:
    step = size_step(pipe)
    if all(side > 0 and side % step == 0 for side in size):
        return
    smaller = [max(1, side // step) * step for side in size]
    larger = [max(1, -(-side // step)) * step for side in size]
    near = " and ".join(dict.fromkeys([format_size(smaller), format_size(larger)]))
    raise invalid_value("size", format_size(size), f"multiples of {step} pixels for this model", f"The nearest: {near}")


def format_size(size: Sequence[int]) -> str:
    return "x".join(map(str, size))
