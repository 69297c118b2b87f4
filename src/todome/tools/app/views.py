"""HTML of runs, from the template views.html beside this file, which escapes whatever a visitor typed."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ..generate import Settings
from ..measuring.verdict import SAME, THRESHOLDS, grade_of, verdict
from ..pictures import BRIGHTER
from ..pipelines import Size, format_size
from ..templates import load_template
from .presets import name_of, title_of
from .reproduce import command, settings_to_repeat, snippet
from .session import Pair, Run, Session

PAPERS = (("ToDo", "https://arxiv.org/abs/2402.13573"), ("ToMe", "https://arxiv.org/abs/2303.17604"))
FIGURES = (
    ("psnr", "PSNR", "{:.1f} dB", "how close the pixels are; above 45 no difference is visible"),
    ("ssim", "SSIM", "{:.4f}", "how alike the structures are; 1 is the same"),
    ("lpips", "LPIPS", "{:.4f}", "how different they look to a trained network; 0 is the same"),
)
CHANCE = "At this size the automatic factor leaves attention as it is. With factor 2 there is something to compare."


class Figure(NamedTuple):
    """Number with its name, and a phrase that explains it."""

    name: str
    value: str
    about: str


class MethodRow(NamedTuple):
    """Row of the table of methods."""

    name: str
    words: str
    seconds: str
    speed: str
    psnr: str


class Bar(NamedTuple):
    """Bar of progress: of a method, over all its pictures."""

    name: str
    note: str
    done: int
    steps: int


def macros() -> Any:
    return load_template(Path(__file__).with_name("views.html")).module


def header(model: str, device: str) -> str:
    """Head of the page. Of a model's folder visitors see the name alone."""
    return str(macros().header(shown_model(model), device, PAPERS))


def shown_model(model: str) -> str:
    return Path(model).name if Path(model).exists() else model


def notice(text: str, kind: str = "error") -> str:
    """Sentence above the picture; nothing where the text is empty."""
    return str(macros().notice(text, kind)) if text else ""


def estimate(text: str) -> str:
    return str(macros().estimate(text))


def setting(text: str, warning: str = "", offer: int = 0) -> str:
    """What the controls do; a warning, and the factor that a button below it sets."""
    return str(macros().setting(text, warning, offer))


def view_choice() -> str:
    return str(macros().view_choice(BRIGHTER))


def started(text: str) -> str:
    """What a run would start from, with a button that removes it; nothing where the text is empty."""
    return str(macros().started(text)) if text else ""


def upload() -> str:
    return str(macros().upload())


def progress(said: str, left: str, bars: list[Bar]) -> str:
    return str(macros().progress(said, left, bars))


def sketch(preview: str, size: Size) -> str:
    return str(macros().sketch(preview, size))


def stage(run: Run) -> str:
    return str(macros().stage(run, titles(run), BRIGHTER))


def titles(run: Run) -> list[str]:
    return [title_of(pair.reduced.asked.reduction) for pair in run.pairs]


def verdict_of(run: Run, label: str = "") -> str:
    """What came of a run: in plain words, with the figures and what each of them says."""
    if not run.pairs:
        seconds = fmean(one.seconds for one in run.full)
        return verdict_html(label, f"Full attention took {seconds:.1f} seconds. Choose a method to compare with it.")
    if all(pair.psnr >= SAME for pair in run.pairs):
        return verdict_html(label, finding(run), [Figure("Why", "", CHANCE)] if is_automatic(run) else [])
    first, *others = run.pairs
    if others:
        head = "picture" if len(run.full) > 1 else "method"
        return verdict_html(label, finding(run), table=table(run), head=head, thresholds=THRESHOLDS)
    return verdict_html(label, finding(run), figures(first), thresholds=THRESHOLDS)


def verdict_html(
    label: str,
    said: str,
    rows: Sequence[Figure] = (),
    table: Sequence[MethodRow] = (),
    head: str = "",
    thresholds: str = "",
) -> str:
    return str(macros().verdict(label, said, rows, table, head, thresholds))


def finding(run: Run) -> str:
    """The verdict on the first method; on several pictures it is about the one that is farthest off."""
    method = run.methods[0]
    said = verdict(run.speedup(method) or 1.0, run.psnr(method), name_of(method) if len(run.methods) > 1 else "")
    return f"{said}{' in any of them' if len(run.full) > 1 and said.endswith('no visible difference') else ''}."


def is_automatic(run: Run) -> bool:
    return getattr(run.methods[0], "factor", None) == "auto"


def figures(pair: Pair) -> list[Figure]:
    """Numbers of a pair, as far as they were measured."""
    from_run = f" (drawn in run {pair.full.run})" if pair.full.run != pair.reduced.run else ""
    about = f"instead of {pair.full.seconds:.1f} s with full attention{from_run}"
    found = [Figure("Time", f"{pair.reduced.seconds:.1f} s", about)]
    for name, title, form, about in FIGURES:
        if name in pair.closeness:
            found.append(Figure(title, form.format(pair.closeness[name]), about))
    return [*found, *memory(pair)]


def memory(pair: Pair) -> list[Figure]:
    used, full = pair.reduced.gigabytes, pair.full.gigabytes
    if used is None or full is None:
        return []
    return [Figure("Memory", f"{used:.2f} GB", f"of the GPU at its peak, instead of {full:.2f} GB")]


def table(run: Run) -> list[MethodRow]:
    """A row for each method, or for each seed where there is one method."""
    full, *others = run.full
    if others:
        return [method_row(f"seed {pair.full.asked.seed}", pair, pair.speedup) for pair in run.pairs]
    rows = [method_row(title_of(method), run.pairs_of(method)[0], run.speedup(method)) for method in run.methods]
    return [MethodRow("full attention", "the reference", f"{full.seconds:.1f} s", "", ""), *rows]


def method_row(name: str, pair: Pair, speedup: float | None) -> MethodRow:
    same = pair.psnr >= SAME
    words = "nothing was reduced" if same else grade_of(pair.psnr).short
    speed = "" if same or speedup is None else f"{speedup:.2f}x"
    return MethodRow(name, words, f"{pair.reduced.seconds:.1f} s", speed, "same" if same else f"{pair.psnr:.1f} dB")


def more(run: Run) -> str:
    """Files of a run, and how to draw it again."""
    settings, file = settings_to_repeat(run.result), run.result.file
    plain = run.extras.start is None and not run.extras.lora
    again = command(settings, file.name) if plain else ""
    return str(macros().more(run, titles(run), file.stem, again, snippet(settings, file.name, run.extras), plain))


def history(session: Session, current: int, most: int) -> str:
    runs = [(run, history_facts(run)) for run in session.runs]
    return str(macros().history(runs, current, most)) if runs else ""


def history_facts(run: Run) -> list[str]:
    size = format_size(run.full[0].settings.size or ())
    if not run.pairs:
        return [size, "full"]
    names = ", ".join(title_of(method) for method in run.methods)
    speedup = run.speedup(run.methods[0])
    return [names, size, "same" if speedup is None else f"{speedup:.1f}x"]


def bars(pictures: list[Settings], known: set[int], at: int, done: int, steps: int) -> list[Bar]:
    """A bar for each method, over the pictures of all seeds.

    Args:
        pictures: All that the run draws, in order.
        known: The places of those that were there already.
        at: The place of the one that is drawn.
        done: Steps of that which are done.
        steps: Steps that it has.
    """
    found = []
    for method in dict.fromkeys(one.reduction for one in pictures):
        places = [place for place, one in enumerate(pictures) if one.reduction == method]
        finished = sum(steps for place in places if place < at or place in known) + (done if at in places else 0)
        total = steps * len(places)
        note = "there already" if known.issuperset(places) else f"{finished} of {total}"
        found.append(Bar(title_of(method), note, finished, total))
    return found
