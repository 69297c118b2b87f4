"""The tables of the pages: each function says, row by row, what a table shows of the results.

A page names the table and the file before it: `<!-- table: plans tuning-h200.json -->` is what `plans` makes of
benchmarks/results/tuning-h200.json. `python benchmarks/figures.py --tables` puts them all into the pages.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from todome.tools.measuring.runs import Closeness, Evaluation, read_plan, read_row
from todome.tools.measuring.speed import BenchCase, BenchRow, read_bench
from todome.tools.measuring.tables import todo_table, tome_table

RESULTS = Path(__file__).parent / "results"
Row: TypeAlias = dict[str, Any]
Table: TypeAlias = Iterable[Mapping[str, object]]  # what stands in each row, by the head of the column
MODELS = {"sd15": "SD 1.5", "sd21": "SD 2.1", "sdxl": "SDXL", "animatediff": "AnimateDiff", "svd": "SVD"}


def table(name: str, *files: str) -> str:
    """A table as Markdown, by the name of its function, of some files of results."""
    made = TABLES[name](*(RESULTS / file for file in files))
    return made if isinstance(made, str) else markdown(list(made))


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    head, *body = ("".join(f"| {cell} " if cell != "" else "| " for cell in line) + "|" for line in lines)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def read(results: Path) -> Any:
    return json.loads(results.read_text())


def alike(rows: Iterable[Row], row: Row, *names: str) -> list[Row]:
    """Those that have the same values under these names."""
    return [one for one in rows if all(one[name] == row[name] for name in names)]


# Speed. A column is a method without its factor, which the first column says.

METHODS = {
    "dense": "dense",
    "todome": "todome",
    "todome,2": "todome, levels 1 + 2",
    "todo": "ToDo (`fixed`)",
    "bare": "bare slice",
    "bound:8": "bound",
    "tome:0.5": "todome Merge 0.5",
    "tomesd:0.5": "tomesd 0.5",
    "ca-tome:-1": "ca-tome, at most",
    "deepcache:3": "DeepCache",
    "todome+deepcache:3": "todome + DeepCache",
}
WITH_MEMORY = {"dense", "todome", "tome:0.5", "tomesd:0.5", "ca-tome:-1", "todome+deepcache:3"}


class Case(NamedTuple):
    """What `todome.bench` found for one model, size, number of pictures and mode."""

    case: BenchCase
    rows: dict[str, BenchRow]  # by method, without its factor

    @property
    def title(self) -> str:
        """The model, with its attention where that is not the usual one, and the size."""
        model, _, attention = self.case.model.partition(", ")
        width, height = self.case.size
        size = f"{width}" if width == height else f"{width} x {height}"
        return ", ".join([MODELS[model], *filter(None, [attention]), size])

    @property
    def factor(self) -> str:
        return self.rows["todome"].method.split(":")[1]


def cases(results: Path, mode: str, pictures: int = 1) -> list[Case]:
    found = read_bench(results)
    chosen = [case for case in found.cases() if (case.mode, case.pictures) == (mode, pictures)]
    return [Case(case, {method_of(row): row for row in found.of(case)}) for case in chosen]


def method_of(row: BenchRow) -> str:
    return re.sub(r"^(todome|todo|bare):\d", r"\1", row.method)


def columns(chosen: Sequence[Case], case: Case, cell: Callable[[BenchRow | None], str]) -> dict[str, str]:
    """A column for each method that ran in one of the cases, or found too little memory."""
    ran = {name for one in chosen for name, row in one.rows.items() if row.ms is not None or is_full(row)}
    return {title: cell(case.rows.get(name)) for name, title in METHODS.items() if name in ran}


def is_full(row: BenchRow) -> bool:
    return row.note.startswith("out of memory")


def speed(results: Path, mode: str, pictures: int = 1) -> Table:
    """Milliseconds of a call, and the speed-up over dense."""
    chosen = cases(results, mode, pictures)
    for case in chosen:
        yield {"model, px, factor": f"{case.title}, {case.factor}", **columns(chosen, case, ms)}


def ms(row: BenchRow | None) -> str:
    if row is None or row.ms is None:
        return "out of memory" if row and is_full(row) else ""
    return f"{row.ms:.1f}" if row.method == "dense" or row.speedup is None else f"{row.ms:.1f} ({row.speedup:.2f}x)"


def memory(results: Path) -> Table:
    """Working memory of a call, beyond the weights; where there was too little, how much was asked for."""
    found = cases(results, "eager") or cases(results, "cuda-graph")
    chosen = [Case(case, {name: row for name, row in rows.items() if name in WITH_MEMORY}) for case, rows in found]
    for case in chosen:
        yield {"model, px": case.title, **columns(chosen, case, mib)}


def mib(row: BenchRow | None) -> str:
    if row is None or row.mib is None:
        return row.note if row and is_full(row) else ""
    return f"{row.mib:.0f}"


def compiled(results: Path) -> Table:
    """What torch.compile makes, as a CUDA graph, and of how many graphs it is."""
    for case in cases(results, "compile-cuda-graph"):
        dense, todome = case.rows["dense"], case.rows["todome"]
        head = {"model, px, factor": f"{case.title}, {case.factor}"}
        yield head | {
            "dense, compiled": ms(dense),
            "todome, compiled": ms(todome),
            "graphs": f"{dense.graphs} and {todome.graphs}",
        }


SUMMARY = (  # the first cell, the model and the method in the results, the files, the mode
    ("SD 1.5", "sd15", "todome", ("speed", "overhead"), "cuda-graph"),
    ("SD 2.1", "sd21", "todome", ("speed",), "cuda-graph"),
    ("SDXL", "sdxl", "todome", ("speed",), "cuda-graph"),
    ("SDXL, levels 1 + 2", "sdxl", "todome,2", ("speed",), "cuda-graph"),
    ("tomesd 0.5 on SD 1.5", "sd15", "tomesd:0.5", ("speed", "overhead"), "cuda-graph"),
    ("SD 1.5, `torch.compile`", "sd15", "todome", ("compiled",), "compile-cuda-graph"),
    ("SDXL, `torch.compile`", "sdxl", "todome", ("compiled",), "compile-cuda-graph"),
    ("SD 1.5, xFormers-like kernel", "sd15, efficient", "todome", ("attention",), "cuda-graph"),
    ("SD 1.5 without such a kernel", "sd15, math", "todome", ("attention",), "cuda-graph"),
)


def summary() -> Table:
    """The speed-ups that the first pages quote, by model or kernel and size: of the first file that has them."""
    for title, model, method, files, mode in SUMMARY:
        found: dict[int, BenchRow] = {}
        for file in reversed(files):
            own = cases(RESULTS / f"{file}-h200.json", mode)
            found |= {one.case.size[0]: one.rows[method] for one in own if one.case.model == model}
        yield {"": title, **{f"{px}" + " px" * (px == 512): gain(found.get(px)) for px in (512, 768, 1024, 1536, 2048)}}


def gain(row: BenchRow | None) -> str:
    if row is None or row.speedup is None:
        return "" if row is None else "dense runs out of memory"
    return f"**{row.speedup:.2f}x**" if row.speedup >= 1.2 and "todome" in row.method else f"{row.speedup:.2f}x"


def host(results: Path) -> Table:
    for row in read(results)["rows"]:
        yield {"": row["method"], "µs a layer": f"{row['us']:.0f}", "beyond dense": f"{row['extra_us']:.0f}"}


def beside(results: Path) -> Table:
    """What a picture takes alone and beside busy loops, by what threads do while they wait."""
    for row in read(results)["rows"]:
        times = {"alone": f"{row['alone']:.1f} s", "beside two busy loops": f"{row['beside']:.1f} s"}
        yield {"threads that wait": row["threads"], **times, "ratio": f"{row['beside'] / row['alone']:.1f}x"}


# Quality: how close pictures are to dense.

MAIN = ("tomesd 0.5", "fixed 2 (ToDo)", "dither 2", "fixed 4 (ToDo)", "dither 4", "dither 2+2")


def group_of(row: Row) -> tuple[int, str, int]:
    """Rows that are compared with the same dense pictures."""
    return row["px"], row["scheduler"], row["steps"]


def name_of(row: Row) -> str:
    if row["method"] != "dense":
        return row["method"]
    return "dense" if is_dense(row) else f"dense, {row['taken']} of {row['steps']} steps"


def is_dense(row: Row) -> bool:
    return row["method"] == "dense" and row["taken"] == row["steps"]


def speedup(row: Row, rows: Iterable[Row]) -> float:
    """Over the fastest dense run of the same size and number of steps: the scheduler takes next to no time."""
    return min(one["seconds"] for one in alike(rows, row, "px", "steps") if is_dense(one)) / row["seconds"]


def closeness(results: Path) -> Table:
    """Every measure of every method, at 256 px with 25 steps of DPM++, the closest first."""
    rows = read(results)["rows"]
    chosen = [row for row in rows if group_of(row) == (256, "dpm++", 25) and not is_dense(row)]
    for row in sorted(chosen, key=lambda row: -row["psnr"]):
        yield {
            "": name_of(row),
            "speed-up": f"{speedup(row, rows):.2f}x",
            "PSNR, dB": f"{row['psnr']:.1f}",
            "worst 5 %": f"{row['psnr_worst']:.1f}",
            "SSIM": f"{row['ssim']:.3f}",
            "LPIPS": f"{row['lpips']:.4f}",
            "detail": f"{row['high_frequency']:.2f}",
        }


def conditions(results: Path) -> Table:
    """PSNR of the main methods under every size, scheduler and number of steps."""
    rows = read(results)["rows"]
    for group in dict.fromkeys(map(group_of, rows)):
        found = {row["method"]: row for row in rows if group_of(row) == group}
        told = {name: f"{row['psnr']:.1f} ({speedup(row, rows):.2f}x)" for name, row in found.items() if name in MAIN}
        head = ", ".join(map(str, (*group, found["dense"]["pictures"])))
        yield {"px, scheduler, steps, pictures": head, **{name: told.get(name, "") for name in MAIN}}


def tome(results: Path) -> str:
    """In the layout of ToMe's paper."""
    return tome_table(run_of(read(results)["tome"]))


def todo(results: Path) -> str:
    """In the layout of ToDo's paper."""
    first, *others = (run_of(found) for name, found in read(results).items() if name.startswith("todo"))
    return todo_table(replace(first, rows=[row for run in (first, *others) for row in run.rows]))


def run_of(found: Row) -> Evaluation:
    """A run from its summary: the means stand for the values of single pictures."""
    rows = [read_row({**row, "closeness": means(row["closeness"])}) for row in found["rows"]]
    return Evaluation(read_plan(found["plan"]), found["about"], rows, Path())


def means(values: dict[str, float]) -> dict[str, list[float]]:
    return {name: [values[name]] for name in Closeness.__dataclass_fields__ if name in values}


AS_FAST = 0.99  # of a plan's speed: timings of one setting differ by as much


def plans(results: Path) -> Table:
    """Every plan beside the closest uniform factors that are as fast, the fastest as close, and fewer steps."""
    rows = read(results)["rows"]
    for plan in (row for row in rows if row["kind"] == "plan"):
        same = alike(rows, plan, "px")
        uniform, steps = ([row for row in same if row["kind"] == kind] for kind in ("uniform", "steps"))
        yield {
            "px, budget": f"{plan['px']}, {plan['keep']:g} dB",
            "the plan": shown(plan) if "psnr" in plan else "nothing to gain",
            "uniform, as fast": told(closest(uniform, plan)),
            "uniform, within the budget": told(fastest(uniform, plan)),
            "dense steps, as fast": told(closest(steps, plan)),
        }


def closest(rows: Iterable[Row], plan: Row) -> Row | None:
    """Of those that are at least as fast as a plan."""
    fast = [row for row in rows if row["speedup"] >= AS_FAST * plan["speedup"]]
    return max(fast, key=lambda row: row["psnr"], default=None)


def fastest(rows: Iterable[Row], plan: Row) -> Row | None:
    """Of those that keep the budget of a plan."""
    return max((row for row in rows if row["psnr"] >= plan["keep"]), key=lambda row: row["speedup"], default=None)


def shown(row: Row) -> str:
    return f"{row['psnr']:.1f} dB, {row['speedup']:.2f}x"


def told(row: Row | None) -> str:
    return "none" if row is None else f"{row['name']}: {shown(row)}"


def other_pictures(results: Path) -> Table:
    """What plans have on the pictures that chose them, and on others."""
    for row in read(results)["rows"]:
        yield {
            "": row["method"].removeprefix("todome:plan=flowers/src/todome_flowers/").replace("todome:", "factor "),
            "on the pictures that chose it": f"{row['chosen_with']:.1f} dB" if "chosen_with" in row else "-",
            "on others": f"{row['psnr']:.1f} dB",
            "the worst of these": f"{row['worst']:.1f} dB",
        }


KEPT = {
    "todo:2": "the corner of each 2 x 2 cell (ToDo)",
    "todome:2": "dithered keys, factor 2",
    "todome:4": "dithered keys, factor 4",
}


def transformer(results: Path) -> Table:
    """Closeness by size, and for methods what a step gains; dense steps in the same time as factor 2 are marked."""
    rows = read(results)["rows"]
    dense = {row["px"]: row for row in rows if row["method"] == "dense"}
    controls = {row["steps"]: row["method"] for row in rows if row["method"].startswith("dense:")}
    for method in (*KEPT, *(controls[steps] for steps in sorted(controls, reverse=True))):
        found = {row["px"]: row for row in rows if row["method"] == method}
        first = next(iter(found.values()))
        name = KEPT.get(method, f"**control**: {first['steps']} of {dense[first['px']]['steps']} steps, dense")
        yield {"what attention is given": name, **{f"{px} px": gained(found.get(px), dense[px]) for px in dense}}


def gained(row: Row | None, dense: Row) -> str:
    if row is None:
        return "-"
    gain = (
        f" ({dense['ms'] / row['ms']:.2f}x)" if row["method"] in KEPT else " (as fast as factor 2)" * row["equal_cost"]
    )
    return f"{row['psnr']:.1f}{gain}"


# Training, many pictures, and versions.

STEPS = {"dense": "dense", "todome:2,phase=random": "factor 2", "todome:4,2,phase=random": "factors 4, 2"}
TRAINING_CASE = ("model", "px", "pictures", "checkpointing", "mode", "attention")


def training(rows: Iterable[Row], second: str) -> Table:
    """Milliseconds of a step with the speed-up over dense, and the GiB it needs beyond the weights."""
    for _, group in itertools.groupby(rows, lambda row: [row[name] for name in TRAINING_CASE]):
        found = {row["method"]: row for row in reversed(list(group))}  # the first dense, not the one that ends a case
        case = found["dense"]
        word = {True: "on", False: "off"}.get(case[second], case[second])
        times = {title: step_time(found[name]) for name, title in STEPS.items()}
        memory = {f"memory {title}": f"{found[name]['peak_mib'] / 1024:.1f}" for name, title in STEPS.items()}
        yield {"model, px": f"{MODELS[case['model']]}, {case['px']}", second: word, **times, **memory}


def step_time(row: Row) -> str:
    taken = f"{row['ms']['median']:.0f}"
    return taken if row["method"] == "dense" else f"{taken} ({row['speedup']:.2f}x)"


def training_steps(results: Path) -> Table:
    rows = [row for row in read(results)["rows"] if row["mode"] == "cuda-graph" and row["pictures"] == 4]
    return training(rows, "checkpointing")


def training_attention(results: Path) -> Table:
    return training([row for row in read(results)["rows"] if row["pictures"] == 1], "attention")


TRAINED = {"dense": "dense", "todome:2": "factor 2", "todome:4": "factor 4", "todo:4": "ToDo 4 (`fixed`)"}


def loras(results: Path) -> Table:
    """How close the reduced pictures of each LoRA are to its dense ones, and the FID of each way to sample."""
    for trained, run in read(results).items():
        found = {title: row for row in run["rows"] for name, title in TRAINED.items() if row["method"] == name}
        close = {title: row["closeness"] for title, row in found.items() if row["closeness"]}
        sampled = {f"sampled with {title}": f"{one['psnr']:.1f} dB, {one['lpips']:.4f}" for title, one in close.items()}
        fid = {f"FID {title}": f"{row['fid']:.0f}" for title, row in found.items()}
        yield {"trained": TRAINED[trained.partition(",")[0]], **sampled, **fid}


def engines(results: Path) -> Table:
    rows = read(results)["rows"]
    for row in rows:
        yield {
            "": row["way"],
            "start-up, s": f"{row['start_s']:.1f}",
            "pictures/s": f"{row['pictures_per_s']:.2f}",
            "against a plain loop": f"{row['pictures_per_s'] / rows[0]['pictures_per_s']:.2f}x",
        }


def versions(results: Path) -> Table:
    """What passed, was skipped and failed with each set of versions."""
    names = {"torch": "torch", "Python": "python", "diffusers": "diffusers", "as in": "who", "passed": "passed"}
    for row in read(results)["rows"]:
        own = {title: row[name] for title, name in names.items()}
        yield own | {"skipped": sum(row["skipped"].values()), "failed": len(row["failed"])}


def skipped(results: Path) -> Table:
    """Why tests were skipped, and with which torch."""
    rows = read(results)["rows"]
    for reason in sorted({reason for row in rows for reason in row["skipped"]}):
        found = {row["torch"] for row in rows if reason in row["skipped"]}
        some = sorted(found, key=lambda torch: [int(number) for number in torch.split(".")])
        yield {
            "skipped because": reason,
            "with torch": "all" if found == {row["torch"] for row in rows} else ", ".join(some),
        }


TIMES = {
    "one_picture": partial(speed, mode="cuda-graph"),
    "four_pictures": partial(speed, mode="cuda-graph", pictures=4),
    "eager": partial(speed, mode="eager"),
}


def reuse(results: Path) -> Table:
    """Closeness of reuse over steps beside its controls at as much work, case by case."""
    rows = read(results)["rows"]
    for case in dict.fromkeys(row["case"] for row in rows):
        own = {row["method"]: row for row in rows if row["case"] == case}
        mine = next(row for name, row in own.items() if name.startswith("keep"))
        shown = {name: f"{row['db']:.1f} ({row['p10']:.1f})" for name, row in own.items()}
        yield {
            "run": case,
            "expected": f"{mine['expected']:.1f}",
            "drawn (10 % quantile)": f"**{shown[mine['method']]}**",
            "late steps": shown.get("late steps", ""),
            "fewer steps": shown["fewer steps"],
            "work": f"{mine['work']:.2f}",
        }


SPEED = (memory, compiled, summary, host, beside)
QUALITY = (closeness, conditions, tome, todo, plans, other_pictures, transformer)
OTHERS = (reuse, training_steps, training_attention, loras, engines, versions, skipped)
TABLES: Mapping[str, Callable[..., Table | str]] = TIMES | {one.__name__: one for one in (*SPEED, *QUALITY, *OTHERS)}
