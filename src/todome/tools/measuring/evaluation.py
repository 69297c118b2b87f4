"""`todome.evaluate`: the same pictures dense and with each method, how close they are and how fast they were.

    import todome

    run = todome.evaluate(prompts=["a red tulip", "white daisies"], methods=["todome:2", "tome:0.5"], out="run")
    for row in run.rows:
        print(row.method, row.speedup, row.closeness.psnr)

The same call continues a run that was interrupted, in the same folder.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import invalid_value
from ...patch import is_pipeline
from ..engines import Engine
from ..engines.here import Here
from ..files import check_out_folder
from ..pipelines import EMBEDDED, check_text_to_image
from ..settings import Settings, recommended_settings
from ..suspending import suspended
from .comparing import PictureMetrics, find_inception, find_lpips
from .drawing import Batch, Drawings, PictureMaker, PictureWorker
from .methods import method_named, methods_named, usual_methods
from .runs import Evaluation, EvaluationPlan, EvaluationRow, read_plan, save_results, times_path, write_json

KINDS = ("daisy", "dandelion", "rose", "sunflower", "tulip")
FLOWERS = (  # what the embedded model can draw
    *(f"a photo of a {kind}" for kind in KINDS),
    *(f"a {kind}, close-up" for kind in KINDS),
    *(f"a field of {kinds}" for kinds in ("daisies", "dandelions", "roses", "sunflowers", "tulips")),
    *("a white daisy", "a yellow dandelion", "a pink rose", "a yellow sunflower", "a red tulip"),
)
Found: TypeAlias = Mapping[str, Any]


def evaluate(
    model: Any = EMBEDDED,
    prompts: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    out: str | os.PathLike[str] = "todome-eval",
    fid: bool = False,
    lpips: str | os.PathLike[str] | None = None,
    inception: str | os.PathLike[str] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    engine: Engine | None = None,
    **given: Any,
) -> Evaluation:
    """Draws the same pictures dense and with each method, and measures how close they are and how fast they were.

    Args: Important
        model: The folder of a pipeline, a hub id, or a pipeline that is open, which is left as it was: a patch that it
            has is off for as long as it is measured.
        prompts: What to draw. The embedded model has its own.
        methods: Names such as "todome", "todome:2", "tome:0.5"; see `todome.tools.measuring.methods`. Dense is always
            there.
        out: The folder of the run. One that is there goes on; methods and pictures can be added to it.
        **given: The other fields of `todome.tools.measuring.runs.EvaluationPlan`: sizes, pictures, seed, steps, ...

    Args: To tinker with
        fid: Measure FID too, to the dense pictures. With `real`, it is measured anyway, to those.
        lpips: The file with the weights of LPIPS. Without it they are looked for where `todome.tools.metrics` says.
        inception: The same for those of FID.
        device: Of a model that is to be opened. "auto" takes the GPU if there is one.
        dtype: Of a model that is to be opened. "auto" is float16 on a GPU and float32 on a CPU.
        engine: Who draws: None is this process, `todome.tools.engines.on_ray.OnRay(...)` a cluster.
    """
    pipe = None if isinstance(model, str) else model
    plan = plan_for(model if pipe is None else name_of(pipe), prompts, methods=methods, **given)
    check_parts(plan, pipe)
    files = {"lpips": lpips, "inception": inception}
    return carry_out(plan, out, fid=fid, pipe=pipe, device=device, dtype=dtype, engine=engine, **files)


def name_of(pipe: Any) -> str:
    """Where an open pipeline comes from, or else its class."""
    if not is_pipeline(pipe):
        allowed = "the folder of a pipeline, a hub id, or a pipeline of diffusers that is open"
        raise invalid_value("model", type(pipe).__name__, allowed, "Pass the pipeline that calls it", TypeError)
    check_text_to_image(pipe, type(pipe).__name__)
    return str(getattr(pipe.config, "_name_or_path", None) or type(pipe).__name__)


def check_parts(plan: EvaluationPlan, pipe: Any) -> None:
    """Refuses parts for a pipeline that is open: they would be written down, and not be in it."""
    for field in ("loras", "vae"):
        if pipe is not None and getattr(plan, field):
            remedy = "Load it into the pipeline yourself, or name the model instead of its pipeline"
            raise invalid_value(field, getattr(plan, field), "None, where the pipeline is open", remedy)


def plan_for(model: str = EMBEDDED, prompts: Sequence[str] | None = None, **given: Any) -> EvaluationPlan:
    """A plan with what suits the model where nothing is given. The embedded one has its own prompts and size.

    Args:
        model: "todome-flowers" (the embedded one), the folder of a pipeline, or an id on the Hugging Face hub.
        prompts: What to draw.
        **given: The other fields of EvaluationPlan; None is as good as nothing.
    """
    check_fields(given)
    if isinstance(prompts, str):
        raise invalid_value("prompts", prompts, "a list of texts", "Put it into one: prompts=[...]", TypeError)
    if prompts is None and model != EMBEDDED:
        raise invalid_value(
            "prompts", None, f"texts; only {EMBEDDED} has its own", "Pass prompts=[...], or --prompts FILE"
        )
    usual = recommended_settings(model)
    own: dict[str, Any] = {"prompts": FLOWERS, "methods": usual_methods(model), "model": model}
    own |= {"guidance": usual.guidance, "sizes": (usual.size,) if usual.size else ()}
    asked = {name: value for name, value in {"prompts": prompts, **given}.items() if value is not None}
    return EvaluationPlan(**own | asked)


def check_fields(given: Found) -> None:
    known = [field.name for field in fields(EvaluationPlan)]
    for name in given:
        if name not in known:
            raise invalid_value(
                name, given[name], f"the fields {', '.join(known)}", f"{name} is none of them", TypeError
            )


def carry_out(
    plan: EvaluationPlan,
    out: str | os.PathLike[str] = "todome-eval",
    *,
    fid: bool = False,
    lpips: str | os.PathLike[str] | None = None,
    inception: str | os.PathLike[str] | None = None,
    pipe: Any = None,
    device: str = "auto",
    dtype: str = "auto",
    engine: Engine | None = None,
) -> Evaluation:
    """Draws what a plan asks for and is not there yet, and measures it. The results are written after every method.

    Args:
        plan: What to draw: `plan_for(...)`, or an EvaluationPlan.
        pipe: The pipeline of `plan.model`, where it is open already.
        out, fid, lpips, inception, device, dtype, engine: As in `evaluate`.
    """
    engine = Here([device]) if engine is None else engine
    if pipe is not None and engine.remote:
        allowed = "the folder of a pipeline or a hub id, with an engine in other processes"
        raise invalid_value("model", type(pipe).__name__, allowed, "Name what each of them is to open", TypeError)
    fid, folder = fid or plan.real is not None, Path(out)
    check_run_folder(folder)
    with nullcontext() if pipe is None else suspended(pipe):
        maker = PictureMaker(checked_plan(plan, fid), folder, pipe, device, dtype)
        (known,) = engine.run(PictureWorker(maker), [None], "todome eval: which machine?")
        machine, sized = known
        maker.plan, machine = open_run(folder, sized, machine)
        network = find_inception(inception, maker.plan.pictures) if fid else None
        metrics = PictureMetrics(maker.plan, folder, maker.device, find_lpips(lpips), network)
        run = Evaluation(maker.plan, machine, [], folder)
        drawing: Any = maker.draw_all(engine)
        with closing(drawing) as drawn:
            for drawings in drawn:
                run = replace(run, rows=[*run.rows, measured_row(maker.plan, metrics, run.rows, drawings)])
                save_results(run)
    return run


def checked_plan(plan: EvaluationPlan, fid: bool) -> EvaluationPlan:
    """A plan that can be drawn, with dense as its first method."""
    Settings(seed=plan.seed, steps=plan.steps, guidance=plan.guidance, scheduler=plan.scheduler)
    if not plan.prompts:
        raise invalid_value("prompts", plan.prompts, "at least one", "Say what to draw")
    for field, least in (("pictures", 2 if fid else 1), ("batch", 1)):
        if getattr(plan, field) < least:
            raise invalid_value(
                field, getattr(plan, field), f"a whole number of at least {least}", f"Use {field}={least} or more"
            )
    return replace(plan, methods=[method.name for method in methods_named(plan.methods)])


def check_run_folder(folder: Path) -> None:
    """Refuses a folder of something else, and one that cannot be written, before a model is opened."""
    check_out_folder(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / "run.json").is_file():
        allowed = "a new folder, or that of an evaluation"
        raise invalid_value("out", str(folder), allowed, "Choose another name", FileExistsError)


def open_run(folder: Path, plan: EvaluationPlan, machine: Found) -> tuple[EvaluationPlan, Found]:
    """What run.json holds from now on: of a new run, or of one that goes on because something of it is drawn."""
    path = folder / "run.json"
    tuned = plan_digests(plan)
    if path.is_file() and any(folder.glob("times/*/*.json")):
        found = json.loads(path.read_text())
        plan = extended_plan(read_plan(found["plan"]), plan, folder)
        tuned = plan_digests(plan)
        for name in tuned.keys() & found.get("tuned", {}).keys():
            check_same(f"the plan of {name}", tuned[name], found["tuned"][name], path)
        check_machine(found["about"], machine, path)
        machine = found["about"]
    write_json(path, {"plan": asdict(plan), "about": machine, **({"tuned": tuned} if tuned else {})})
    return plan, machine


def plan_digests(plan: EvaluationPlan) -> dict[str, str]:
    """A digest of each tuned plan among the methods: its file may change until the run goes on."""
    loaded = {name: method_named(name).loaded() for name in plan.methods}
    return {name: f"digest {method.plan_digest}" for name, method in loaded.items() if method.plan}


def extended_plan(old: EvaluationPlan, new: EvaluationPlan, folder: Path) -> EvaluationPlan:
    """The plan of a run that goes on. It may have more methods and more pictures than before, and nothing else."""
    path = folder / "run.json"
    for field in (name for name in asdict(old) if name not in ("methods", "only", "pictures")):
        check_same(field, json_value(getattr(new, field)), json_value(getattr(old, field)), path)
    if new.pictures < old.pictures:
        raise invalid_value(
            "pictures", new.pictures, f"at least {old.pictures}, as in {path}", "Evaluate into another folder"
        )
    kept = [name for name in old.methods if any(times_path(folder, size, name).is_file() for size in old.sizes)]
    everywhere = {name for plan in (old, new) for name in plan.methods if name not in plan.only}
    only = {name: sizes for name, sizes in {**old.only, **new.only}.items() if name not in everywhere}
    return replace(new, methods=list(dict.fromkeys([*kept, *new.methods])), only=only)


def json_value(value: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))


def check_same(field: str, new: Any, old: Any, path: Path) -> None:
    """Refuses another value, and of a list the first one that is another."""
    if isinstance(old, list) and isinstance(new, list):
        for i, (a, b) in enumerate(zip_longest(new, old)):
            check_same(f"{field}[{i}]", a, b, path)
    elif new != old:
        raise invalid_value(field, new, f"{old!r}, as in {path}", "Evaluate into another folder")


def check_machine(old: Found, new: Found, path: Path) -> None:
    """Times of two machines in one table would compare the machines, and pictures of two trainings these."""
    for field in ("gpu", "cpu", "dtype", "weights"):
        check_same(field, new.get(field), old.get(field), path)


def measured_row(
    plan: EvaluationPlan, metrics: PictureMetrics, rows: Sequence[EvaluationRow], drawings: Drawings
) -> EvaluationRow:
    """The row of a method, whose pictures are drawn."""
    size, method, batches = drawings.size, drawings.method, drawings.batches()
    seconds = sum(batch.seconds for batch in batches) / plan.pictures
    dense = next((row.seconds for row in rows if row.size == size and row.is_dense), seconds)
    return EvaluationRow(
        size=size,
        method=method.name,
        pictures=plan.pictures,
        steps=method.steps or plan.steps,
        seconds=seconds,
        speedup=dense / seconds,
        gigabytes=gigabytes(batches),
        fid=metrics.fid(size, method.name),
        closeness=metrics.closeness(size, method.name),
    )


def gigabytes(batches: Sequence[Batch]) -> float | None:
    """Per picture of a full batch, which needs the most."""
    peaks = [batch.gigabytes for batch in batches if batch.gigabytes is not None]
    return max(peaks) / max(batch.pictures for batch in batches) if peaks else None
