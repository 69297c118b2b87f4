"""Drawing the pictures of an evaluation, batch by batch, each into its file, with the time that each batch took."""

import copy
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from .. import pipelines
from ..devices import reachable_device, torch_dtype
from ..engines import Engine, Place
from ..generate import Generated, Settings, call_options, call_pipeline, complete_settings
from ..machine import about
from ..pictures import write_png
from ..pipelines import Size, check_size, format_size
from ..schedulers import sampler_title, use_scheduler
from ..timing import now
from .methods import Method, method_named
from .runs import EvaluationPlan, features_path, picture_path, times_path, write_json
from .subjects import own_size


@dataclass(frozen=True)
class Batch:
    """The time and memory of one call of the pipeline."""

    first: int  # picture
    pictures: int
    seconds: float
    gigabytes: float | None = None  # of a GPU's memory, at the peak


class PictureMaker:
    """A pipeline, opened when the first picture is to be drawn, and the folder its pictures go to."""

    def __init__(
        self, plan: EvaluationPlan, folder: Path, pipe: Any = None, device: str = "auto", dtype: str = "auto"
    ) -> None:
        self.plan, self.folder, self.given, self.precision = plan, folder, pipe, dtype
        self.methods: dict[str, Method] = {}  # with the plans they name, which are files of this machine
        for name in plan.methods:
            self.method(name)
        self.move(device)

    def method(self, name: str) -> Method:
        if name not in self.methods:
            self.methods[name] = method_named(name).loaded()
        return self.methods[name]

    def move(self, device: str) -> None:
        """Says where to open the pipeline, unless it was given."""
        self.device = reachable_device(device) if self.given is None else self.given.device
        self.dtype = torch_dtype(self.precision, self.device) if self.given is None else self.given.dtype

    def at(self, device: str) -> "PictureMaker":
        """A maker for another device, with a pipeline of its own; itself where that is its device already."""
        if self.given is not None or reachable_device(device) == self.device:
            return self
        other = copy.copy(self)
        vars(other).pop("pipe", None)
        other.move(device)
        return other

    def machine(self) -> dict[str, Any]:
        """What draws: machine, versions, number format, weights."""
        precision = {"dtype": str(self.dtype).removeprefix("torch.")}
        return {**about(self.device, "diffusers"), **precision, **pipelines.weights_of(self.plan.model)}

    @cached_property
    def pipe(self) -> Any:
        """Whatever of the plan it cannot do is refused before the first picture."""
        pipe = self.given
        if pipe is None:
            precision = str(self.dtype).removeprefix("torch.")
            parts: dict[str, Any] = {"loras": self.plan.loras, "vae": self.plan.vae}
            pipe = pipelines.open_pipeline(self.plan.model, str(self.device), precision, **parts)
            pipe.set_progress_bar_config(disable=True)
        for size in self.plan.sizes:
            check_size(pipe, size)
        for name in self.plan.methods:
            with self.method(name).on(pipe):
                pass
        return pipe

    def sized_plan(self) -> EvaluationPlan:
        """The plan with the size that the pipeline draws if it is told none, where the plan has none."""
        return self.plan if self.plan.sizes else replace(self.plan, sizes=(own_size(self.pipe),))

    def draw_all(self, engine: Engine) -> "Iterator[Drawings]":
        """Has an engine draw what is not there yet. Yields each size and method of the plan when it is complete."""
        plan = self.plan
        wanted = [Drawings(self, size, self.method(name)) for size in plan.sizes for name in plan.methods_at(size)]
        items = [(one.size, one.method.name, numbers) for one in wanted for numbers in one.left()]
        by_name = {(one.size, one.method.name): one for one in wanted}
        run: Any = engine.run(PictureWorker(self), items, "todome eval")
        with closing(run) as results, tqdm(total=len(items), unit="batch", disable=None, leave=False) as bar:
            for one in wanted:
                bar.set_description(f"{format_size(one.size)} {one.method.name}")
                while one.left():
                    size, name, batch = next(results)
                    by_name[size, name].add(batch)
                    bar.update()
                yield one

    def batches(self) -> list[range]:
        """The numbers of the pictures of each batch."""
        numbers = range(self.plan.pictures)
        return [numbers[at : at + self.plan.batch] for at in numbers[:: self.plan.batch]]

    def is_drawn(self, size: Size, method: Method, batch: Batch) -> bool:
        numbers = range(batch.first, batch.first + batch.pictures)
        return numbers in self.batches() and all(
            picture_path(self.folder, size, method.name, i).is_file() for i in numbers
        )

    def draw_batch(self, size: Size, method: Method, numbers: range) -> Batch:
        settings = self.settings(size, method, numbers)
        watched = self.device.type == "cuda"
        if watched:
            torch.cuda.reset_peak_memory_stats(self.device)
        began = now(self.device)
        pictures = self.call(settings)
        seconds = now(self.device) - began
        peak = torch.cuda.max_memory_allocated(self.device) / 1e9 if watched else None
        self.write_pictures(size, method, settings, pictures)
        return Batch(numbers.start, len(numbers), seconds, peak)

    def settings(self, size: Size, method: Method, numbers: range, steps: int | None = None) -> list[Settings]:
        """What each picture of a batch is drawn with."""
        plan = self.plan
        common: dict[str, Any] = {"model": plan.model, "size": size, "steps": steps or method.steps or plan.steps}
        common |= {"guidance": plan.guidance, "scheduler": plan.scheduler, "reduction": method.reduction}
        return [Settings(plan.prompt(i), seed=plan.seed + i, **common) for i in numbers]

    def call(self, settings: Sequence[Settings], output: str = "pt") -> Tensor:
        """The pictures (B, 3, H, W) of one call, from 0 to 1; or its latents, where these are the output."""
        return call_pipeline(self.pipe, settings, call_options(self.pipe, settings[0]), output)

    def write_pictures(self, size: Size, method: Method, settings: Sequence[Settings], pictures: Tensor) -> None:
        """Writes a batch of pictures, with their settings in them."""
        pixels = (pictures.float().clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()  # (B, H, W, 3)
        sampler = sampler_title(self.pipe.scheduler)

        def write(one: Settings, pixels: np.ndarray) -> None:
            picture = Image.fromarray(pixels)
            made = Generated(picture, complete_settings(self.pipe, one, picture.size), sampler, 0.0, method.name)
            path = picture_path(self.folder, size, method.name, one.seed - self.plan.seed)
            texts = {"method": method.name} | ({} if method.peers else made.texts())  # others' code has no settings
            write_png(picture, path, texts, force=True, compress_level=1)

        picture_path(self.folder, size, method.name, 0).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor() as pool:
            list(pool.map(write, settings, pixels))


class Drawings:
    """The pictures of one method at one size: which batches are drawn. One is if its time and all its pictures are."""

    def __init__(self, maker: PictureMaker, size: Size, method: Method) -> None:
        self.maker, self.size, self.method = maker, size, method
        self.path = times_path(maker.folder, size, method.name)
        self.done = {batch.first: batch for batch in read_times(self.path) if maker.is_drawn(size, method, batch)}
        if self.left():
            features_path(maker.folder, size, method.name).unlink(missing_ok=True)

    def left(self) -> list[range]:
        return [numbers for numbers in self.maker.batches() if numbers.start not in self.done]

    def batches(self) -> list[Batch]:
        return [self.done[first] for first in sorted(self.done)]

    def add(self, batch: Batch) -> None:
        self.done[batch.first] = batch
        write_json(self.path, [asdict(batch) for batch in self.batches()])


class PictureWorker:
    """Worker that draws batches of an evaluation.

    A method stays on the pipeline from batch to batch: a compiled one would be compiled again.
    """

    def __init__(self, maker: PictureMaker) -> None:
        self.maker, self.on, self.current = maker, None, None

    def open(self, place: Place) -> None:
        self.maker = self.maker.at(place.device)
        self.on = ExitStack()

    def close(self) -> None:
        if self.on is not None:
            self.on.close()
        self.on, self.current = None, None

    def work(self, item: Any) -> Any:
        if item is None:  # before anything is drawn: who are you?
            return self.maker.machine(), self.maker.sized_plan()
        size, name, numbers = item
        method = self.maker.method(name)
        if self.current != (size, name):
            self.put_on(size, method, numbers)
        return size, name, self.maker.draw_batch(size, method, numbers)

    def put_on(self, size: Size, method: Method, numbers: range) -> None:
        """One step comes first, for the first call on a device is slow whatever it does."""
        assert self.on is not None
        self.on.close()
        pipe = self.maker.pipe
        self.on.enter_context(use_scheduler(pipe, self.maker.plan.scheduler))
        self.on.enter_context(method.on(pipe))
        self.current = (size, method.name)
        self.maker.call(self.maker.settings(size, method, numbers, steps=1))


def read_times(path: Path) -> list[Batch]:
    return [Batch(**found) for found in json.loads(path.read_text())] if path.is_file() else []
