"""How close reduced pictures are to the dense ones, on the embedded model: PSNR, SSIM, LPIPS, detail, and FID.

    python benchmarks/fidelity.py --out benchmarks/results/fidelity.json --lpips lpips.safetensors \
        --inception inception.safetensors --features features.safetensors --fid-prompts prompts.txt

Every method draws the same pictures from the same noise as the dense model. The control is the dense model with fewer
steps, which anyone can have: a reduction must be closer at the same speed. `seconds` is the time of the denoiser's loop
for all pictures, without text encoder and decoder. Rows are written as they are made, and rows that are there are not
made again. Without Inception's weights there is no FID, which wants 2,048 pictures and the features of real photos.
"""

import argparse
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import tomesd
import torch
from fidelity_tables import MAIN
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

import todome
from todome import Downsample, Merge
from todome.tools.measuring.evaluation import FLOWERS
from todome.tools.measuring.machine import about
from todome.tools.measuring.runs import write_json
from todome.tools.measuring.timing import now
from todome.tools.metrics import LPIPS, Inception, frechet_distance, high_frequency, psnr, ssim
from todome.tools.pipelines import open_pipeline
from todome.tools.schedulers import use_scheduler

GUIDANCE = 3.0
BATCH = {256: 200, 512: 32}
SEED = 10_000  # away from the seeds of the FID

Method = Callable[[Any], AbstractContextManager[Any]]


def reduction(settings: Downsample | Merge) -> Method:
    return lambda pipe: todome.apply(pipe, settings)


def peer(ratio: float) -> Method:
    @contextlib.contextmanager
    def merged(pipe: Any) -> Iterator[None]:
        tomesd.apply_patch(pipe, ratio=ratio)
        yield
        tomesd.remove_patch(pipe)

    return merged


METHODS: dict[str, Method] = {
    "dense": contextlib.nullcontext,
    "tomesd 0.25": peer(0.25),
    "tomesd 0.5": peer(0.5),
    "tomesd 0.75": peer(0.75),
    "Merge 0.5": reduction(Merge(0.5)),
    "fixed 2 (ToDo)": reduction(Downsample(2, phase="fixed")),
    "fixed 2, stop 0.6 (ToDo)": reduction(Downsample(2, phase="fixed", stop=0.6)),
    "fixed 4 (ToDo)": reduction(Downsample(4, phase="fixed")),
    "fixed 1.5 (ToDo)": reduction(Downsample(1.5, phase="fixed")),
    "random 2": reduction(Downsample(2, phase="random")),
    "dither 1.5": reduction(Downsample(1.5)),
    "dither 2": reduction(Downsample(2)),
    "dither 3": reduction(Downsample(3)),
    "dither 4": reduction(Downsample(4)),
    "dither 2, stop 0.8": reduction(Downsample(2, stop=0.8)),
    "dither 4, stop 0.8": reduction(Downsample(4, stop=0.8)),
    "dither 2+2": reduction(Downsample((2, 2))),
    "dither 4+2": reduction(Downsample((4, 2))),
    "fixed 2+2 (ToDo)": reduction(Downsample((2, 2), phase="fixed")),
}
FID_OF = ("dense", "tomesd 0.5", "fixed 2 (ToDo)", "dither 2")


class Case(NamedTuple):
    """What one row measures."""

    px: int
    scheduler: str
    steps: int
    method: str
    pictures: int
    taken: int  # steps that are really taken; fewer than `steps` in the control


def cases(count: int) -> list[Case]:
    """What matters most first: an interrupted run has measured the most important."""
    plan = [Case(256, "dpm++", 25, name, count, 25) for name in METHODS]
    plan += [Case(256, "dpm++", 25, "dense", count, taken) for taken in (22, 20, 17, 13)]
    for scheduler in ("ddim", "euler-a"):
        plan += [Case(256, scheduler, 25, name, count, 25) for name in ("dense", *MAIN)]
    plan += [Case(256, "dpm++", 10, name, count, 10) for name in ("dense", *MAIN)]
    few = math.ceil(0.32 * count)  # a picture of 512 px costs ten times as much
    plan += [Case(512, "dpm++", 25, name, few, 25) for name in ("dense", *MAIN)]
    plan += [Case(512, "dpm++", 25, "dense", few, taken) for taken in (17, 13)]
    plan += [Case(256, "dpm++", 50, name, count, 50) for name in ("dense", *MAIN)]
    return plan


class Studio:
    """The pipeline, and the metrics that look at its pictures."""

    def __init__(self, device: str, lpips: Path) -> None:
        self.pipe = open_pipeline(device=device)
        self.pipe.set_progress_bar_config(disable=True)
        self.pipe.unet.to(memory_format=torch.channels_last)
        self.lpips = LPIPS.load(lpips).to(self.pipe.device)
        self.device = self.pipe.device
        self.dense: dict[Case, tuple[Tensor, float]] = {}

    def measure(self, case: Case) -> dict[str, Any]:
        """One row: how close to dense, and how long it took."""
        prompts = self.prompts(case)
        dense = case._replace(method="dense", taken=case.steps)
        if dense not in self.dense:
            self.dense = {dense: self.draw(prompts, SEED, dense)}  # one at a time: they fill the memory
        made, seconds = self.dense[dense] if case == dense else self.draw(prompts, SEED, case)
        return {**case._asdict(), "seconds": round(seconds, 3), **self.closeness(made, self.dense[dense][0])}

    def prompts(self, case: Case) -> list[str]:
        return [FLOWERS[i % len(FLOWERS)] for i in range(case.pictures)]

    @torch.inference_mode()
    def draw(self, prompts: Sequence[str], seed: int, case: Case) -> tuple[Tensor, float]:
        """Pictures (N, 3, px, px) in bytes, and the seconds of the denoiser's loop."""
        made, seconds = [], 0.0
        with use_scheduler(self.pipe, case.scheduler), METHODS[case.method](self.pipe):
            for at in range(0, len(prompts), BATCH[case.px]):
                batch = list(prompts[at : at + BATCH[case.px]])
                noise = [torch.Generator(self.device).manual_seed(seed + at + i) for i in range(len(batch))]
                began = now(self.device)
                latents = self.pipe(
                    batch,
                    height=case.px,
                    width=case.px,
                    num_inference_steps=case.taken,
                    guidance_scale=GUIDANCE,
                    generator=noise,
                    output_type="latent",
                ).images
                seconds += now(self.device) - began
                made += [self.decoded(piece) for piece in latents.split(32)]
        return torch.cat(made), seconds

    def decoded(self, latents: Tensor) -> Tensor:
        pictures = self.pipe.vae.decode(latents / self.pipe.vae.config.scaling_factor).sample
        return ((pictures.float() / 2 + 0.5).clamp(0, 1) * 255).round().byte()

    @torch.inference_mode()
    def closeness(self, made: Tensor, reference: Tensor) -> dict[str, float]:
        """Means over the pictures; of PSNR also the mean of the worst 5 %."""
        pairs = zip(made.split(50), reference.split(50), strict=True)
        rows = [(metric(a / 255, b / 255) for metric in (psnr, ssim, self.lpips, high_frequency)) for a, b in pairs]
        p, s, l, h = (torch.cat(column).double().cpu() for column in zip(*rows, strict=True))  # noqa: E741
        p = p.clamp(max=100)  # the same picture
        worst = p.sort().values[: max(1, len(p) // 20)]
        values = {"psnr": p.mean(), "psnr_worst": worst.mean(), "ssim": s.mean(), "lpips": l.mean()}
        return {name: round(value.item(), 4) for name, value in (values | {"high_frequency": h.mean()}).items()}

    def fid(self, method: str, prompts: Sequence[str], network: Inception, real: Tensor) -> dict[str, Any]:
        """FID of as many pictures as there are prompts to the features of real photos."""
        made, seconds = self.draw(prompts, 0, Case(256, "dpm++", 25, method, len(prompts), 25))
        with torch.inference_mode():
            seen = torch.cat([network(piece / 255).float().cpu() for piece in made.split(128)])
        distance = round(frechet_distance(seen, real), 3)
        return {"method": method, "pictures": len(prompts), "fid": distance, "seconds": round(seconds, 3)}


class Results:
    """The file of results: written whole after every row."""

    def __init__(self, path: Path, device: torch.device) -> None:
        self.path = path
        found = json.loads(path.read_text()) if path.exists() else {"rows": [], "fid": []}
        self.rows, self.fid = found["rows"], found["fid"]
        self.about = found.get("about") or about(device, "diffusers", "tomesd", "transformers")

    def lacks(self, case: Case) -> bool:
        return not any(all(row[name] == value for name, value in case._asdict().items()) for row in self.rows)

    def save(self) -> None:
        content = {"about": self.about, "guidance": GUIDANCE, "prompts": FLOWERS, "rows": self.rows, "fid": self.fid}
        write_json(self.path, content)


def asked_cases(options: argparse.Namespace) -> list[Case]:
    """The cases that the command line leaves."""
    wanted = {"px": options.px, "scheduler": options.scheduler, "steps": options.steps, "method": options.method}
    left = [(field, values) for field, values in wanted.items() if values]
    return [c for c in cases(options.pictures) if all(getattr(c, field) in values for field, values in left)]


def measure_closeness(studio: Studio, results: Results, plan: list[Case], deadline: float) -> None:
    warm_up = plan[0]._replace(method="dense", steps=2, taken=2)
    studio.draw(studio.prompts(warm_up), SEED, warm_up)
    for case in tqdm([case for case in plan if results.lacks(case)], "cases"):
        if time.monotonic() > deadline:
            return
        results.rows.append(studio.measure(case))
        results.save()


def measure_fid(studio: Studio, results: Results, options: argparse.Namespace, deadline: float) -> None:
    network = Inception.load(options.inception).to(studio.device)
    real, prompts = load_file(options.features)["features"].float(), options.fid_prompts.read_text().splitlines()
    done = [row["method"] for row in results.fid]
    for method in tqdm([name for name in FID_OF if name not in done], "FID"):
        if time.monotonic() > deadline:
            return
        results.fid.append(studio.fid(method, prompts, network, real))
        results.save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lpips", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--px", type=int, nargs="+", help="only these sizes")
    parser.add_argument("--scheduler", nargs="+", help="only these")
    parser.add_argument("--steps", type=int, nargs="+", help="only these")
    parser.add_argument("--method", nargs="+", help="only these; dense is made anyway")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop in good order after this time")
    parser.add_argument("--inception", type=Path)
    parser.add_argument("--features", type=Path, help="of real photos, under the key `features`")
    parser.add_argument("--fid-prompts", type=Path, help="one prompt a line, a picture each")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    studio = Studio(options.device, options.lpips)
    results = Results(options.out, studio.device)
    measure_closeness(studio, results, asked_cases(options), deadline)
    if options.inception:
        measure_fid(studio, results, options, deadline)


if __name__ == "__main__":
    main()
