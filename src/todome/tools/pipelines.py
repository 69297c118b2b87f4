"""Text-to-image pipelines of diffusers: opening the embedded one, a folder, a file or a hub id; sizes one can draw."""

import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import invalid_value
from .checkpoints.opening import check_parts, open_checkpoint, use_loras, use_vae
from .devices import explain_out_of_memory, reachable_device, torch_dtype
from .quiet import quiet_loading

EMBEDDED = "todome-flowers"
HUB_ID = "stable-diffusion-v1-5/stable-diffusion-v1-5"
KNOWN = f'"{EMBEDDED}", a folder, a .safetensors checkpoint, or a hub id such as "{HUB_ID}"'
WEIGHTS = (".safetensors", ".ckpt", ".pt", ".pth", ".bin", ".gguf")  # endings that no hub id has
Size = tuple[int, int]  # width, height
MULTIPLE = 8  # of pixels, which every model needs; some need more, and say so when they are open


def open_pipeline(
    model: str | Path = EMBEDDED,
    device: str = "auto",
    dtype: str = "auto",
    *,
    loras: Sequence[str] = (),
    vae: str | None = None,
) -> Any:
    """A text-to-image pipeline, ready to be called.

    Args:
        model: "todome-flowers" (the embedded one), the folder of a pipeline, a .safetensors checkpoint of Stable
            Diffusion 1.x, 2.x or XL, or an id on the Hugging Face hub.
        device: "auto" takes the GPU if there is one.
        dtype: "auto" is float16 on a GPU and float32 on a CPU.
        loras: Files of LoRAs to add to its weights, each with a weight if it is to be another than 1:
            "style.safetensors:0.8".
        vae: File or folder of another autoencoder than its own.
    """
    where = reachable_device(device)
    precision = torch_dtype(dtype, where)
    check_parts(loras, vae)
    path = find_model(str(model))
    with explain_out_of_memory(f"{model} on {where}", "Use float16, another device, or a smaller model"):
        pipe = open_checkpoint(path, where, precision) if path.is_file() else open_folder(path, str(model), precision)
        check_text_to_image(pipe, str(model))
        if vae is not None:
            use_vae(pipe, vae)
        if loras:
            use_loras(pipe, loras)
        return pipe.to(where)


def weights_of(model: str) -> dict[str, str]:
    """Which weights the embedded model has, for results to carry; nothing of other models, whose name says it."""
    if model != EMBEDDED:
        return {}
    import todome_flowers

    return {"weights": todome_flowers.fingerprint()}


def open_folder(folder: Path, model: str, dtype: Any) -> Any:
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": True, "use_safetensors": True}
    with quiet_loading() as diffusers:
        try:
            return diffusers.DiffusionPipeline.from_pretrained(folder, **options)
        except (OSError, ValueError) as error:
            if any(any(part.glob("*.bin")) and not any(part.glob("*.safetensors")) for part in folder.iterdir()):
                raise pickled(model) from error
            raise invalid_value(
                "model", model, "a pipeline that diffusers can open", f"It says: {first_sentence(error)}"
            ) from error


def pickled(model: str) -> Exception:
    """The error for a pipeline whose weights are pickles, which can run any code when they are opened."""
    convert = "DiffusionPipeline.from_pretrained(NAME).save_pretrained(FOLDER)"
    remedy = f"This one has pickles (.bin), which can run any code. Convert it where you trust it: {convert}"
    return invalid_value("model", model, "a pipeline with weights in .safetensors files", remedy)


def find_model(model: str) -> Path:
    """Folder or file of a model on this machine; one that is on the hub is downloaded."""
    if model == EMBEDDED:
        import todome_flowers

        return Path(todome_flowers.path())
    path = Path(model).expanduser()
    if path.is_dir() and not (path / "model_index.json").is_file():
        files = ", ".join(file.name for file in sorted(path.glob("*.safetensors"))[:3])
        remedy = f"Name one of the files in it: {files}" if files else "Name the folder that save_pretrained made"
        raise invalid_value("model", model, "a folder with a model_index.json, as diffusers saves pipelines", remedy)
    if path.exists():
        return path
    if model.count("/") != 1 or model[0] in "/.~" or model.endswith(WEIGHTS):
        raise invalid_value("model", model, KNOWN, "Nothing is there: check the spelling")
    return download(model)


def download(model: str) -> Path:
    """Folder of a pipeline that is on the hub, which is downloaded unless it is here already."""
    from diffusers import DiffusionPipeline

    try:
        return Path(DiffusionPipeline.download(model, use_safetensors=True))
    except (OSError, ValueError) as error:
        if "safetensors" in str(error):  # it is there, without such files
            raise pickled(model) from None
        remedy = "Neither a folder here nor reachable on the hub: check the spelling and the network"
        raise invalid_value("model", model, KNOWN, remedy) from None


def first_sentence(error: Exception) -> str:
    return str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")


def check_text_to_image(pipe: Any, model: str) -> None:
    options = inspect.signature(pipe.__call__).parameters
    from_picture = "image" in options and getattr(pipe, "unet", None) is not None  # some transformers can do without
    if "prompt" not in options or "num_frames" in options or from_picture or denoiser(pipe) is None:
        remedy = f"{type(pipe).__name__} makes something else, or from something else"
        raise invalid_value("model", model, "a pipeline that makes a picture from a text", remedy)


def denoiser(pipe: Any) -> Any:
    unet = getattr(pipe, "unet", None)  # a compiled one has no truth value
    return getattr(pipe, "transformer", None) if unet is None else unet


def size_step(pipe: Any) -> int:
    """Number of pixels of which the sides of a pipeline's pictures must be multiples."""
    pixels = getattr(getattr(pipe, "image_processor", None), "config", {}).get("vae_scale_factor", 1)
    patch = denoiser(pipe).config.get("patch_size") or 1  # of a transformer; UNets take any latents
    return math.lcm(8, pixels * patch)  # 8 is what the pipelines of diffusers ask for, whatever their autoencoder


def check_size(pipe: Any, size: Size) -> None:
    check_sides(size, size_step(pipe))


def check_sides(size: Size, step: int) -> None:
    """Refuses sides that are no multiples of so many pixels, and names the nearest that are."""
    for name, side in zip(("Width", "Height"), size, strict=True):
        if side <= 0 or side % step:
            near = dict.fromkeys(max(1, count) * step for count in (side // step, -(-side // step)))
            likely = " or ".join(map(str, near))
            raise ValueError(f"{name} {side} does not work: this model needs multiples of {step}. Try {likely}.")


def format_size(size: Sequence[int]) -> str:
    return "x".join(map(str, size))
