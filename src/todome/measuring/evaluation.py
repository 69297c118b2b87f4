"""`todome eval`: the same pictures dense and with each method, how close they are and how fast they were.

    from todome.measuring.evaluation import evaluate, plan_for

    run = evaluate(plan_for(prompts=["a red tulip", "white daisies"], methods=["todome:2", "tome:0.5"]), "run")
    for row in run.rows:
        print(row.method, row.speedup, row.closeness.psnr)

A run that was interrupted goes on where it stopped, in the same folder.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from ..generate import Settings, recommended
from ..pipelines import EMBEDDED, Size
from ..reductions import reject
from .comparing import Jury, find_inception, find_lpips
from .drawing import Batch, Studio
from .machine import about
from .methods import Method, method_named, methods_named
from .runs import Evaluation, Plan, Row, plan_of, save_results, times_path, write_json

KINDS = ("daisy", "dandelion", "rose", "sunflower", "tulip")
FLOWERS = (  # what the embedded model can draw
    *(f"a photo of a {kind}" for kind in KINDS),
    *(f"a {kind}, close-up" for kind in KINDS),
    *(f"a field of {kinds}" for kinds in ("daisies", "dandelions", "roses", "sunflowers", "tulips")),
    *("a white daisy", "a yellow dandelion", "a pink rose", "a yellow sunflower", "a red tulip"),
)
Found: TypeAlias = Mapping[str, Any]


def plan_for(model: str = EMBEDDED, prompts: Sequence[str] | None = None, **given: Any) -> Plan:
    """A plan with what suits the model where nothing is given. The embedded one has its own prompts and size.

    Args:
        model: "todome-flowers" (the embedded one), the folder of a pipeline, or an id on the Hugging Face hub.
        prompts: What to draw.
        given: The other fields of Plan; None is as good as nothing.
    """
    usual = recommended(model)
    if prompts is None and model != EMBEDDED:
        reject("prompts", None, f"texts; only {EMBEDDED} has its own", "Name a file of them with --prompts")
    methods = ("todome:2", "todo:2", "tome:0.5") if model == EMBEDDED else ("todome", "todo", "tome")
    own: dict[str, Any] = {"prompts": FLOWERS, "methods": methods, "model": model, "guidance": usual.guidance}
    own["sizes"] = (usual.size,) if usual.size else ()
    return Plan(**own | {name: value for name, value in {"prompts": prompts, **given}.items() if value is not None})


def evaluate(
    plan: Plan,
    out: str | os.PathLike[str] = "todome-eval",
    *,
    fid: bool = False,
    lpips: str | os.PathLike[str] | None = None,
    inception: str | os.PathLike[str] | None = None,
    pipe: Any = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Evaluation:
    """Draws what a plan asks for and is not there yet, and measures it. The results are written after every method.

    Args:
        plan: What to draw: `plan_for(...)`, or a Plan.
        out: The folder of the run. One that is there goes on; methods and pictures can be added to it.
        fid: Measure FID too, to the dense pictures. Where `plan.real` names others, it is measured anyway, to those.
        lpips, inception: Files of weights. Without them they are looked for where `todome.metrics` says.
        pipe: The pipeline of `plan.model`, where it is open already. It is left as it was.
        device, dtype: "auto" takes the GPU in float16 if there is one, else the CPU in float32.
    """
    fid, folder = fid or plan.real is not None, Path(out)
    studio = Studio(checked(plan, fid), folder, pipe, device, dtype)
    precision = {"dtype": str(studio.dtype).removeprefix("torch.")}
    studio.plan, machine = begun(folder, studio.sized_plan(), {**about(studio.device, "diffusers"), **precision})
    network = find_inception(inception, studio.plan.pictures) if fid else None
    jury = Jury(studio.plan, folder, studio.device, find_lpips(lpips), network)
    run = Evaluation(studio.plan, machine, [], folder)
    for size in run.plan.sizes:
        for name in run.plan.methods_at(size):
            run = replace(run, rows=[*run.rows, measured(studio, jury, run.rows, size, method_named(name))])
            save_results(run)
    return run


def checked(plan: Plan, fid: bool) -> Plan:
    """A plan that can be drawn, with dense as its first method."""
    Settings(seed=plan.seed, steps=plan.steps, guidance=plan.guidance, scheduler=plan.scheduler)
    if not plan.prompts:
        reject("prompts", plan.prompts, "at least one", "Write one on each line of a file")
    for field, least in (("pictures", 2 if fid else 1), ("batch", 1)):
        if getattr(plan, field) < least:
            reject(field, getattr(plan, field), f"a whole number of at least {least}", f"Use {field}={least} or more")
    return replace(plan, methods=[method.name for method in methods_named(plan.methods)])


def begun(folder: Path, plan: Plan, machine: Found) -> tuple[Plan, Found]:
    """What run.json holds from now on: of a new run, or of one that goes on because something of it is drawn."""
    path = folder / "run.json"
    if path.is_file() and any(folder.glob("times/*/*.json")):
        found = json.loads(path.read_text())
        check_machine(found["about"], machine, path)
        plan, machine = grown(plan_of(found["plan"]), plan, folder), found["about"]
    elif not path.is_file() and folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        reject("out", str(folder), "a new folder, or that of an evaluation", "Choose another name", FileExistsError)
    write_json(path, {"plan": asdict(plan), "about": machine})
    return plan, machine


def grown(old: Plan, new: Plan, folder: Path) -> Plan:
    """The plan of a run that goes on. It may have more methods and more pictures than before, and nothing else."""
    path = folder / "run.json"
    for field in (name for name in asdict(old) if name not in ("methods", "only", "pictures")):
        check_same(field, plain(getattr(new, field)), plain(getattr(old, field)), path)
    if new.pictures < old.pictures:
        reject("pictures", new.pictures, f"at least {old.pictures}, as in {path}", "Evaluate into another folder")
    kept = [name for name in old.methods if any(times_path(folder, size, name).is_file() for size in old.sizes)]
    everywhere = {name for plan in (old, new) for name in plan.methods if name not in plan.only}
    only = {name: sizes for name, sizes in {**old.only, **new.only}.items() if name not in everywhere}
    return replace(new, methods=list(dict.fromkeys([*kept, *new.methods])), only=only)


def plain(value: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))


def check_same(field: str, new: Any, old: Any, path: Path) -> None:
    """Refuses another value, and of a list the first one that is another."""
    if isinstance(old, list) and isinstance(new, list):
        for i, (a, b) in enumerate(zip_longest(new, old)):
            check_same(f"{field}[{i}]", a, b, path)
    elif new != old:
        reject(field, new, f"{old!r}, as in {path}", "Evaluate into another folder")


def check_machine(old: Found, new: Found, path: Path) -> None:
    """Times of two machines in one table would compare the machines."""
    for field in ("gpu", "cpu", "dtype"):
        check_same(field, new.get(field), old.get(field), path)


def measured(studio: Studio, jury: Jury, rows: Sequence[Row], size: Size, method: Method) -> Row:
    """The row of a method, whose pictures are drawn where they are not there."""
    batches, plan = studio.draw(size, method), studio.plan
    seconds = sum(batch.seconds for batch in batches) / plan.pictures
    dense = next((row.seconds for row in rows if row.size == size and row.is_dense), seconds)
    return Row(
        size=size,
        method=method.name,
        pictures=plan.pictures,
        steps=method.steps or plan.steps,
        seconds=seconds,
        speedup=dense / seconds,
        gigabytes=gigabytes(batches),
        fid=jury.fid(size, method.name),
        closeness=jury.closeness(size, method.name),
    )


def gigabytes(batches: Sequence[Batch]) -> float | None:
    """Per picture of a full batch, which needs the most."""
    peaks = [batch.gigabytes for batch in batches if batch.gigabytes is not None]
    return max(peaks) / max(batch.pictures for batch in batches) if peaks else None
