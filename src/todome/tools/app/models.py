"""Models that the operator allows, one of them open at a time, with the LoRA and the pipeline that a run needs."""

from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..generate import Settings
from ..pipelines import open_pipeline
from ..quiet import quiet_loading
from .form import Extras

Task: TypeAlias = Literal["text", "image", "inpaint"]
PIPELINES = {"image": "AutoPipelineForImage2Image", "inpaint": "AutoPipelineForInpainting"}
ADAPTER = "page"


class Models:
    """The model that is open. Used by the thread that draws alone, once the page is built.

    Args:
        base: Settings with the model to begin with, the device and the dtype.
        pipe: Its pipeline.
        loras: Folder of LoRA files, where the operator named one.
    """

    def __init__(self, base: Settings, pipe: Any, loras: Path | None = None) -> None:
        self.base, self.loras = base, loras
        self.model = base.model
        self.pipe: Any = pipe
        self.lora: tuple[str, float] | None = None
        self.others: dict[str, Any] = {}  # pipelines for pictures, made of the parts of the open one
        self.pipe.set_progress_bar_config(disable=True)

    def is_open(self, model: str) -> bool:
        return model == self.model

    def pipeline(self, settings: Settings, extras: Extras) -> Any:
        """Pipeline for a picture, with its LoRA."""
        self.open(settings.model)
        self.use_lora(extras)
        task = task_of(extras)
        return self.pipe if task == "text" else self.pipeline_for(task)

    def open(self, model: str) -> None:
        """Opens a model in place of the one that is open: two may not fit."""
        if self.is_open(model):
            return
        self.model, self.pipe, self.lora, self.others = "", None, None, {}
        pipe = open_pipeline(model, self.base.device, self.base.dtype)
        pipe.set_progress_bar_config(disable=True)
        self.model, self.pipe = model, pipe

    def pipeline_for(self, task: Task) -> Any:
        if task not in self.others:
            with quiet_loading() as diffusers:
                try:
                    self.others[task] = getattr(diffusers, PIPELINES[task]).from_pipe(self.pipe)
                except ValueError:
                    sentence = "This model cannot start from a picture. Remove the picture, or choose another model."
                    raise ValueError(sentence) from None
            self.others[task].set_progress_bar_config(disable=True)
        return self.others[task]

    def use_lora(self, extras: Extras) -> None:
        """Loads the LoRA of a run, unless it is loaded; takes off that of the run before."""
        wanted = (extras.lora, extras.weight) if extras.lora else None
        if wanted == self.lora:
            return
        if self.lora is not None:
            self.pipe.unload_lora_weights()
            self.lora = None
        if wanted is not None and self.loras is not None:
            self.load_lora(self.loras / extras.lora, extras.weight)
            self.lora = wanted

    def load_lora(self, file: Path, weight: float) -> None:
        try:
            with quiet_loading():
                self.pipe.load_lora_weights(file.parent, weight_name=file.name, adapter_name=ADAPTER)
                self.pipe.set_adapters([ADAPTER], [weight])
        except (AttributeError, KeyError, OSError, RuntimeError, ValueError):
            self.pipe.unload_lora_weights()
            raise ValueError(f"LoRA {file.stem!r} does not fit this model. Choose another one, or none.") from None


def task_of(extras: Extras) -> Task:
    if extras.start is None:
        return "text"
    return "inpaint" if extras.start.masked else "image"


def lora_files(folder: Path | None) -> tuple[str, ...]:
    """Names of the LoRA files in a folder."""
    if folder is None:
        return ()
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is no folder. --loras needs one with .safetensors files in it.")
    return tuple(sorted(path.name for path in folder.glob("*.safetensors") if path.is_file()))
