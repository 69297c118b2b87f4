"""`todome.bench`: the time of one denoiser call with each method, in rounds, every method once in each of them."""

import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ...errors import invalid_value
from ...patch import denoisers, is_pipeline
from ..devices import explain_out_of_memory
from ..files import check_out_file
from ..machine import about
from ..pipelines import EMBEDDED, Size, format_size
from ..suspending import suspended
from ..timing import MODES, Mode, Timing, captured, measuring, now, peak_mib, settle, spread
from .methods import Method, is_windowed, methods_named, usual_methods
from .peers import StepKind
from .runs import write_json
from .subjects import DenoiserCall, denoiser_call, open_subject

AGAIN = "dense again"  # the drift of the machine: dense, measured as the last of every round
OF_A_RUN = ("date", "plans")  # in what a file says about itself; the rest is of the machine


def usual_sizes(model: Any) -> list[Size]:
    return [(256, 256), (512, 512)] if model == EMBEDDED else [(512, 512), (1024, 1024)]


@dataclass(frozen=True)
class BenchCase:
    """One model, size, number of pictures and mode: what the methods are compared on."""

    model: str
    size: Size
    pictures: int  # drawn at once; with guidance the denoiser sees twice as many
    mode: Mode


@dataclass(frozen=True)
class BenchRow:
    """The speed of one method on one case."""

    case: BenchCase
    method: str
    ms: float | None  # of a denoiser call, the median; None where it did not run
    ms_quartiles: tuple[float, float] | None = None
    speedup: float | None = None  # over dense, the median over the rounds; None where dense did not run
    speedup_quartiles: tuple[float, float] | None = None
    seconds: float | None = None  # per picture
    mib: float | None = None  # working memory of a call; None where it is compiled
    graphs: int | None = None  # that torch.compile made of the model
    note: str = ""
    drift: float | None = None  # of dense: how much slower it was at the end of a round than at its beginning

    @property
    def per_second(self) -> float | None:
        """Denoiser calls, which samplers count as it/s."""
        return self.ms and 1000 / self.ms


@dataclass(frozen=True)
class Bench:
    """The rows of a benchmark, with the machine, the versions and the date."""

    about: Mapping[str, Any]
    steps: int  # of a picture
    rows: Sequence[BenchRow]

    def of(self, case: BenchCase) -> list[BenchRow]:
        """The rows of a case."""
        return [row for row in self.rows if row.case == case]

    def methods(self, case: BenchCase) -> list[str]:
        """The names of the methods that were measured on a case."""
        return [row.method for row in self.of(case)]

    def drift(self, case: BenchCase) -> float | None:
        """How much slower dense was at the end of a round than at its beginning: 0.1 is a tenth."""
        return next((row.drift for row in self.of(case) if row.method == "dense"), None)

    def cases(self) -> list[BenchCase]:
        """What was measured, in its order."""
        return list(dict.fromkeys(row.case for row in self.rows))


def bench(
    model: Any = EMBEDDED,
    sizes: Sequence[Size] | None = None,
    methods: Sequence[str] | None = None,
    *,
    pictures: Sequence[int] = (1,),
    modes: Sequence[Mode] = ("eager",),
    steps: int = 25,
    rounds: int = 3,
    seconds: float = 1.0,
    device: str = "auto",
    dtype: str = "auto",
    loras: Sequence[str] = (),
    vae: str | None = None,
    out: Path | str | None = None,
    name: str | None = None,
    progress: bool = False,
) -> Bench:
    """Measures how fast a model runs dense and with each method.

    Args: Important
        model: The folder of a pipeline, a .safetensors checkpoint, a hub id, or a pipeline that is open: a patch that
            it has is off while it is measured. "sd15", "sd21", "sdxl", "animatediff" and "svd" are UNets in the shape
            of these with random weights, so that nothing has to be downloaded.
        sizes: (width, height) in pixels.
        methods: Names such as "todome", "todome:2", "tome:0.5"; see `todome.tools.measuring.methods`. Dense is always
            there.
        pictures: How many are drawn at once.
        modes: "eager" is what a plain pipeline sees; "cuda-graph" is the GPU's own time; "compile" is torch.compile;
            "compile-cuda-graph" the GPU's own time of what torch.compile makes.

    Args: To tinker with
        steps: Of a picture, for the time per picture.
        rounds: How often each method is measured.
        seconds: For how long, in each round.
        device: Of a model that is to be opened. "auto" takes the GPU if there is one.
        dtype: Of a model that is to be opened. "auto" is float16 on a GPU and float32 on a CPU.
        loras: LoRAs to add to a model that is to be opened: "style.safetensors:0.8".
        vae: File or folder of another autoencoder for it.
        out: A JSON file that is written after every case. Cases that it holds already are not measured again.
        name: What to call a model that is open; its class unless given.
        progress: Show a bar.
    """
    sizes, methods = sizes or usual_sizes(model), methods or usual_methods(model)
    chosen = [check_timeable(method.loaded()) for method in methods_named(methods)]
    check_modes(modes)
    if out is not None:
        check_out_file(Path(out))
    target = open_subject(model, device, dtype, loras=loras, vae=vae) if isinstance(model, str) else model
    called = name or (
        " + ".join([model, *loras, *filter(None, [vae])]) if isinstance(model, str) else type(model).__name__
    )
    cases = [BenchCase(called, size, count, mode) for size in sizes for count in pictures for mode in modes]
    found = without_changed_plans(results_so_far(out, target, steps), chosen)
    left = [case for case in cases if is_missing(found, case, chosen)]
    turns, timing = len(left) * rounds * (len(chosen) + 1), Timing(seconds, rounds, patience=math.inf)
    with suspended(target), tqdm(total=turns, disable=not progress, leave=False) as bar:
        for case in left:
            bar.set_description(f"{case.model} {format_size(case.size)}, {case.pictures} at once, {case.mode}")
            both = methods_named([method.name for method in chosen] + found.methods(case))  # nothing is lost
            rows = CaseTimer(target, case, steps, timing).run(both, bar.update)
            found = replace(found, rows=[*(row for row in found.rows if row.case != case), *rows])
            if out is not None:
                write_json(Path(out), asdict(found))
    return replace(found, rows=[row for row in found.rows if row.case in cases])


def check_timeable(method: Method) -> Method:
    """Refuses what has no cost of a single call."""
    if method.steps is not None or is_windowed(method.reduction):
        raise invalid_value(
            "method", method.name, "what is the same at every step", "Compare whole pictures with todome eval"
        )
    return method


def check_modes(modes: Sequence[str]) -> None:
    for mode in modes:
        if mode not in MODES:
            raise invalid_value("mode", mode, ", ".join(MODES), "eager is what a plain pipeline sees")
        if "cuda-graph" in mode and not torch.cuda.is_available():
            raise invalid_value("mode", mode, "eager or compile without a CUDA GPU", "Leave it out")


def results_so_far(out: Path | str | None, target: Any, steps: int) -> Bench:
    """What is in the file already, or nothing yet."""
    machine = about(next(denoisers(target)[0].parameters()).device, "diffusers", "tomesd", "ca-tome", "DeepCache")
    if out is None or not Path(out).exists():
        return Bench(machine, steps, [])
    found = read_bench(Path(out))
    here, there = ({key: value for key, value in one.items() if key not in OF_A_RUN} for one in (machine, found.about))
    if (there, found.steps) != (here, steps):
        allowed = "a file of the same machine, versions and steps"
        raise invalid_value("out", str(out), allowed, "Choose another name: numbers of two machines do not compare")
    return found


def without_changed_plans(found: Bench, methods: Sequence[Method]) -> Bench:
    """Rows of plans whose files are others than before go: they are measured again."""
    plans = {method.name: method.plan_digest for method in methods if method.plan}
    known = found.about.get("plans", {})
    changed = {name for name, digest in plans.items() if known.get(name, digest) != digest}
    machine = {**found.about, "plans": {**known, **plans}} if plans else found.about
    return replace(found, about=machine, rows=[row for row in found.rows if row.method not in changed])


def read_bench(path: Path) -> Bench:
    try:
        found = json.loads(path.read_text())
        rows = [read_row(row) for row in found["rows"]]
        return Bench(found["about"], found["steps"], [row for row in rows if row.method != AGAIN])  # 0.1 wrote both
    except (KeyError, TypeError, ValueError):
        raise invalid_value("file", str(path), "a JSON file that todome bench wrote", "Choose another name") from None


def read_row(found: Mapping[str, Any]) -> BenchRow:
    """Lists in JSON were tuples."""
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}
    return BenchRow(**{**values, "case": BenchCase(**{**found["case"], "size": tuple(found["case"]["size"])})})


def is_missing(found: Bench, case: BenchCase, methods: Sequence[Method]) -> bool:
    return not {method.name for method in methods} <= set(found.methods(case))


class CaseTimer:
    """Timer of the methods on one case, round by round."""

    def __init__(self, target: Any, case: BenchCase, steps: int, timing: Timing) -> None:
        self.case, self.steps, self.timing = case, steps, timing
        self.call = denoiser_call(target, case.size, case.pictures)
        self.rest = seconds_beside_denoiser(target, case) if is_pipeline(target) else 0.0
        self.device = self.call.device
        self.times: dict[str, list[float]] = {}  # ms of each round
        self.peaks: dict[str, float | None] = {}
        self.graphs: dict[str, int] = {}
        self.dense_replay: Callable[[], Any] | None = None
        self.notes: dict[str, str] = {}

    def run(self, methods: Sequence[Method], after_turn: Callable[[], Any] = lambda: None) -> list[BenchRow]:
        turns = [(method.name, method) for method in methods] + [(AGAIN, methods[0])]
        with measuring():
            with suppress(torch.OutOfMemoryError):  # of dense, which is noted when its turn comes
                settle(self.call, self.device)
            for name, method in self.timing.turns(turns):
                if name not in self.notes:
                    self.measure(name, method)
                after_turn()
        return [self.row(method.name) for method in methods]

    def measure(self, name: str, method: Method) -> None:
        """One round of one method. What does not run is noted, and the others go on."""
        if "cuda-graph" in self.case.mode and not all(peer.capturable for peer in method.peers):
            self.notes[name] = "cannot be captured: it reads from the device"
            return
        try:
            with method.on(self.call.model) as kinds, explain_out_of_memory("this method", "Lower the size"):
                if name not in self.peaks:
                    self.peaks[name] = self.peak(kinds)
                before = self.graphs_made()
                self.times.setdefault(name, []).append(self.mean_ms(kinds, method))
                self.graphs.setdefault(name, self.graphs_made() - before)
        except MemoryError as error:
            self.notes[name] = f"out of memory{asked_for(error)}"

    def peak(self, kinds: Sequence[StepKind]) -> float | None:
        if "compile" in self.case.mode:
            return None
        kinds[0].begin()
        return peak_mib(self.call, self.device)

    def mean_ms(self, kinds: Sequence[StepKind], method: Method) -> float:
        """Of a call: kinds of steps that cost different times count by how many of each there are."""
        timing, total = replace(self.timing, seconds=self.timing.seconds / len(kinds)), 0.0
        for kind in kinds:
            kind.begin()
            total += kind.share * statistics.median(timing.milliseconds(self.prepared_call(method), self.device))
        return total

    def graphs_made(self) -> int:
        """By torch.compile so far, which is not even imported where it is not asked for."""
        return torch._dynamo.utils.counters["stats"]["unique_graphs"] if "compile" in self.case.mode else 0

    def prepared_call(self, method: Method) -> Callable[[], Any]:
        """The call as the mode makes it. What is compiled for minutes and then captured is kept where that is safe."""
        if self.case.mode != "compile-cuda-graph" or not method.is_dense:
            return call_in_mode(self.call, self.case.mode)
        self.dense_replay = self.dense_replay or call_in_mode(self.call, self.case.mode)
        return self.dense_replay

    def row(self, name: str) -> BenchRow:
        if name in self.notes:
            return BenchRow(self.case, name, None, note=self.notes[name])
        times = self.times[name] + (self.times.get(AGAIN, []) if name == "dense" else [])
        middle, low, high = rounded(spread(times))
        seconds = (self.steps * middle / 1000 + self.rest) / self.case.pictures
        mib = self.peaks[name]
        row = BenchRow(self.case, name, middle, (low, high), seconds=round(seconds, 4), mib=mib and round(mib, 1))
        row = replace(row, graphs=self.graphs.get(name) or None)
        if {"dense", AGAIN} & self.notes.keys():
            return row
        gain, low, high = rounded(spread(self.speedups(name)))
        drift = round(self.drift(), 3) if name == "dense" else None
        return replace(row, speedup=gain, speedup_quartiles=(low, high), drift=drift)

    def drift(self) -> float:
        pairs = zip(self.times["dense"], self.times[AGAIN], strict=True)
        return statistics.median(again / first - 1 for first, again in pairs)

    def speedups(self, name: str) -> list[float]:
        """Within each round, over the mean of dense before and after: the machine may drift from round to round."""
        dense, again, mine = (self.times[one] for one in ("dense", AGAIN, name))
        if name == "dense":
            return [1.0] * len(dense)
        return [(a + b) / 2 / c for a, b, c in zip(dense, again, mine, strict=True)]


def asked_for(error: MemoryError) -> str:
    """How much memory was wanted where it ran out, if the device says so."""
    wanted = re.search(r"Tried to allocate ([\d.]+ \w+)", str(error.__cause__))
    return f": {wanted[1]} at once" if wanted else ""


def rounded(values: Sequence[float]) -> Iterator[float]:
    return (round(value, 3) for value in values)


def call_in_mode(call: DenoiserCall, mode: Mode) -> Callable[[], Any]:
    """The call as this mode makes it."""
    if "compile" in mode:
        torch.compiler.reset()  # a graph of another method would be taken for this one's
        call = replace(call, model=torch.compile(call.model, dynamic=False))
    return captured(call) if "cuda-graph" in mode else call


def seconds_beside_denoiser(pipe: Any, case: BenchCase) -> float:
    """Seconds of a batch that are not the denoiser's: text encoder, decoder, and what goes on between."""
    width, height = case.size
    noise = torch.Generator().manual_seed(0)  # the global one is the user's
    options = {"width": width, "height": height, "generator": noise, "output_type": "pt"}

    def draw(steps: int) -> float:
        began = now(pipe.device)
        pipe([""] * case.pictures, num_inference_steps=steps, **options)
        return now(pipe.device) - began

    draw(1)
    one, two = draw(1), draw(2)
    return max(0.0, one - (two - one))
