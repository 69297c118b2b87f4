"""Drawing the pictures of an evaluation, batch by batch, each into its file, with the time that each batch took."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from ..devices import explain_out_of_memory, reachable_device, torch_dtype
from ..generate import Generated, Settings, call_options, complete_settings
from ..pictures import write_png
from ..pipelines import Size, check_size, format_size
from ..schedulers import sampler_title, use_scheduler
from ..stopwatch import now
from .methods import Method, method_named
from .runs import Plan, features_path, picture_path, times_path, write_json
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

    def __init__(self, plan: Plan, folder: Path, pipe: Any = None, device: str = "auto", dtype: str = "auto") -> None:
        self.plan, self.folder, self.given = plan, folder, pipe
        self.device = reachable_device(device) if pipe is None else pipe.device
        self.dtype = torch_dtype(dtype, self.device) if pipe is None else pipe.dtype

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
            with method_named(name).on(pipe):
                pass
        return pipe

    def sized_plan(self) -> Plan:
        """The plan with the size that the pipeline draws if it is told none, where the plan has none."""
        return self.plan if self.plan.sizes else replace(self.plan, sizes=(own_size(self.pipe),))

    def draw(self, size: Size, method: Method) -> list[Batch]:
        """Draws what is not there yet. A batch is there if its time and all its pictures are."""
        path = times_path(self.folder, size, method.name)
        done = {batch.first: batch for batch in read_times(path) if self.is_drawn(size, method, batch)}
        left = [numbers for numbers in self.batches() if numbers.start not in done]
        if left:
            features_path(self.folder, size, method.name).unlink(missing_ok=True)
            for batch in self.draw_batches(size, method, left):
                done[batch.first] = batch
                write_json(path, [asdict(done[first]) for first in sorted(done)])
        return [done[first] for first in sorted(done)]

    def draw_batches(self, size: Size, method: Method, left: Sequence[range]) -> Iterator[Batch]:
        """Draws batches. One step comes first, for the first call on a device is slow whatever it does."""
        with use_scheduler(self.pipe, self.plan.scheduler), method.on(self.pipe):
            self.call(self.settings(size, method, left[0], steps=1))
            for numbers in tqdm(left, f"{format_size(size)} {method.name}", unit="batch", disable=None, leave=False):
                yield self.draw_batch(size, method, numbers)

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

    def call(self, settings: Sequence[Settings]) -> Tensor:
        """The pictures (B, 3, H, W) of one call, from 0 to 1."""
        options, prompts = call_options(self.pipe, settings[0]), [one.prompt for one in settings]
        noise = [torch.Generator().manual_seed(one.seed) for one in settings]  # of the CPU: alike on every device
        what = f"{len(settings)} pictures of {format_size(settings[0].size or ())} pixels at once"
        with explain_out_of_memory(what, "Lower the batch or the sizes, or use float16"):
            return self.pipe(prompts, generator=noise, output_type="pt", **options).images

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


def read_times(path: Path) -> list[Batch]:
    return [Batch(**found) for found in json.loads(path.read_text())] if path.is_file() else []
