"""Models that the operator allows, one of them open at a time, with the LoRA and the pipeline that a run needs."""

import inspect
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..generate import Settings
from ..pipelines import open_pipeline
from ..quiet import quiet_loading
from .form import Extras

Task: TypeAlias = Literal["text", "image", "inpaint"]
ENDINGS = {"image": "Img2ImgPipeline", "inpaint": "InpaintPipeline"}  # of the names of classes, by which they are found
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
        wanted = self.base.for_model(model)
        pipe = open_pipeline(model, wanted.device, wanted.dtype, loras=wanted.loras, vae=wanted.vae)
        pipe.set_progress_bar_config(disable=True)
        self.model, self.pipe = model, pipe

    def pipeline_for(self, task: Task) -> Any:
        if task not in self.others:
            with quiet_loading() as diffusers:
                kind = getattr(diffusers, pipeline_class(type(self.pipe).__name__, task), None)
                if kind is None:
                    raise ValueError("This model cannot start from a picture. Remove it, or choose another model.")
                self.others[task] = of_same_parts(kind, self.pipe)
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


def pipeline_class(name: str, task: Task) -> str:
    """Name of the class that starts from a picture, by that of the one that starts from a text.

    diffusers' AutoPipeline classes know it too, but they import every pipeline there is.
    """
    return name.removesuffix("Pipeline") + ENDINGS[task]


def of_same_parts(kind: Any, pipe: Any) -> Any:
    """Pipeline of another class with the parts and flags of one: `from_pipe` refuses parts of unknown types."""
    known = {**dict(pipe.config), **pipe.components}
    return kind(**{name: known[name] for name in inspect.signature(kind.__init__).parameters if name in known})


def task_of(extras: Extras) -> Task:
    if extras.start is None:
        return "text"
    return "inpaint" if extras.start.masked else "image"


def lora_files(folder: Path | None) -> tuple[str, ...]:
    """Names of the LoRA files in a folder."""
    if folder is None:
        return ()
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is no folder. --lora-folder needs one with .safetensors files in it.")
    return tuple(sorted(path.name for path in folder.glob("*.safetensors") if path.is_file()))
