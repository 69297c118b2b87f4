"""The sentences of a report: what was found, how it was measured, and the command that measures it again."""

import shlex
from dataclasses import fields
from statistics import fmean
from typing import Any

from ..pipelines import Size, format_size
from .methods import method_named
from .plots import SERIES, compared_rows, series_of
from .runs import Evaluation, EvaluationRow
from .verdict import verdict

NOTHING_TO_COMPARE = "There is nothing to compare with full attention (dense) at this size yet."


def title_of(method: str) -> str:
    return method_named(method).title


def colour_of(row: EvaluationRow) -> str:
    return "none" if row.is_dense else series_of(method_named(row.method)).colour


def leading(run: Evaluation, size: Size) -> EvaluationRow:
    """The row that the report is about: todome's first one, else the first that is not the control."""
    order = list(SERIES.values())
    return min(compared_rows(run, size), key=lambda row: order.index(series_of(method_named(row.method))))


def findings(run: Evaluation, size: Size) -> list[str]:
    """What was found at a size, in sentences, the most important first."""
    rows, close = [row for row in run.rows if row.size == size], compared_rows(run, size)
    undrawn = [title_of(name) for name in run.plan.methods_at(size) if name not in {row.method for row in rows}]
    waiting = [title_of(row.method) for row in rows if not row.is_dense and row not in close]
    said = main_result(run, size) if close else [NOTHING_TO_COMPARE]
    said += [f"Not drawn yet: {'; '.join(undrawn)}."] if undrawn else []
    return said + ([f"Not compared with full attention yet: {'; '.join(waiting)}."] if waiting else [])


def main_result(run: Evaluation, size: Size) -> list[str]:
    """The leading method, and the control that is nearest to it in speed."""
    row = leading(run, size)
    psnr = row.closeness.psnr
    said = f"{verdict(row.speedup, fmean(psnr), title_of(row.method))}. To full attention (dense) it is "
    said += f"{fmean(psnr):.1f}\u00a0dB close on average, and {min(psnr):.0f}\u00a0dB in its worst picture."
    controls = [other for other in compared_rows(run, size) if other is not row and method_named(other.method).steps]
    if not controls:
        return [said]
    control = min(controls, key=lambda other: abs(other.speedup - row.speedup))
    taken = f"Full attention with {control.steps} of {run.plan.steps} steps is {control.speedup:.2f}x as fast"
    return [said, f"{taken} and {fmean(control.closeness.psnr):.1f}\u00a0dB close: the control, which anyone can have."]


def settings_by_name(run: Evaluation) -> dict[str, str]:
    """The plan and the machine, each thing by its name. The prompts have a place of their own."""
    plan = {field.name: getattr(run.plan, field.name) for field in fields(run.plan) if field.name != "prompts"}
    left = {"guidance": "the model's", "scheduler": "the model's"}
    given = {name: left.get(name) if value is None else value for name, value in plan.items()}
    given["sizes"] = [format_size(size) for size in run.plan.sizes]
    return {name: as_text(value) for name, value in {**given, **run.about}.items() if value not in (None, {})}


def as_text(value: Any) -> str:
    if isinstance(value, dict):
        return as_text([f"{name} {as_text(one)}" for name, one in value.items()])
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def command_for(run: Evaluation) -> str | None:
    """What to type to evaluate the same again; None where a paper's table chose other methods for each size."""
    plan = run.plan
    if plan.only:
        return None
    words = ["todome", "eval", plan.model, "--prompts", "prompts.txt", "--methods", *plan.methods, "--size"]
    words += [format_size(size) for size in plan.sizes]
    words += [word for lora in plan.loras for word in ("--lora", lora)]
    for option in ("vae", "pictures", "seed", "steps", "guidance", "scheduler", "batch", "real"):
        value = getattr(plan, option)
        words += [] if value is None else [f"--{option}", str(value)]
    if plan.real is None and any(row.fid is not None for row in run.rows):
        words.append("--fid")
    return shlex.join(words)
