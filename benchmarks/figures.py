"""What was made by a script: how each file is made again, and which of them are older than the embedded model.

    python benchmarks/figures.py --list      every file, what it was made with, and what makes it
    python benchmarks/figures.py             makes again what is out of date and runs on a CPU, then does the tables
    python benchmarks/figures.py --tables    puts the tables of the results into the pages

What depends on the weights of the embedded model carries their fingerprint (`todome_flowers.fingerprint`): being out of
date is a fact. Other results say when and with which torch they were made. An interrupted run goes on: what is made is
not made again. What needs a GPU is made by hand with the commands of the list, and pages are read again by people:
their fingerprint says with which results they were compared. `tables.py` says how a page names a table.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import todome_flowers
from tables import RESULTS, table

from todome.tools.files import atomic_write

ROOT = Path(__file__).parents[1]
STAMP = re.compile(rb'weights(?:\0|"?: ?"?)([0-9a-f]{16}|unknown)')  # JSON, a page, a script; \0 in PNG files
DATE = re.compile(r'"date": "([^"]+)"')
TORCH = re.compile(r'"torch": "([^"]+)"')
MARK = re.compile(r"<!-- table: ([^>]+) -->\n(?:\n(?:\|.*\n)+)?")
WORK = "build/figures"  # what an interrupted command goes on from, in a folder for each weights


class Made(NamedTuple):
    """A file, and the command that makes it; pages have none."""

    path: str
    command: str = ""
    minutes: int = 0  # on two cores; what has none needs a GPU
    weights: bool = True  # whether it depends on those of the embedded model; times of models do not
    commit: str = ""  # whose code has made it, where that code is gone

    @property
    def who(self) -> str:
        return "by hand" if not self.command else "CPU" if self.minutes else "GPU"


def result(name: str, command: str, minutes: int = 0, weights: bool = True) -> Made:
    return Made(f"benchmarks/results/{name}", f"benchmarks/{command}", minutes, weights)


def timed(name: str, command: str, minutes: int = 0) -> Made:
    return result(name, command, minutes, weights=False)


LPIPS, BOTH = "--lpips lpips.safetensors", "--lpips lpips.safetensors --inception inception.safetensors"
CARD = "flowers/train/evaluate.py --pipeline flowers/src/todome_flowers/pipeline --run RUN --to flowers"
CARD += " --inception inception.safetensors"
LORA = f"benchmarks/lora_study.py posters --work WORK/lora {BOTH} --out benchmarks/results/lora-study-h200.json"
LORA += " --sheet docs/figures/lora.png"
WITH_TRAINER = "c22ddc6"  # todome 0.1, whose `todome train-lora` it needs
HOST = "host.py --rounds 20 --calls 20 --out FILE"
TRANSFORMER = "transformer.py PHOTOS --run RUN --out benchmarks/results/transformer-h200.json"
TRANSFORMER += " --sheet docs/figures/transformer.jpg"
TUNED = "benchmarks/results/tuning-h200"  # every single measurement
TUNING = f"tuning.py --work {TUNED} --out {TUNED}.json --plans flowers/src/todome_flowers/plans/h200"
PAGES = ("index", "quality", "reuse", "settings", "training", "migrating", "how-it-works")
MADE = [
    result("fidelity-h200.json", f"fidelity.py --work WORK/fidelity --out FILE {LPIPS}"),
    result(
        "ancestors-h200.json",
        f"ancestors.py --work WORK/ancestors --out FILE {BOTH} --real RUN/features.safetensors --prompts prompts.txt",
    ),
    result("layers.json", "layers.py --work WORK/layers --second RUN2/pipeline --out FILE"),
    Made("benchmarks/results/lora-study-h200.json", LORA, commit=WITH_TRAINER),
    result("transformer-h200.json", TRANSFORMER),
    result("tuning-h200.json", TUNING),
    *(timed(f"tuning-h200/{px}/measurements.jsonl", TUNING) for px in (256, 512, 768)),
    result("other-pictures.json", "other_pictures.py --work WORK/other-pictures --out FILE", minutes=15),
    timed("speed-h200.json", "speed.py --out FILE"),
    timed("video-h200.json", "speed.py --models animatediff svd --modes cuda-graph --out FILE"),
    timed(
        "attention-h200.json",
        "speed.py --models sd15 --modes cuda-graph --attention math efficient --batch 1 --out FILE",
    ),
    timed(
        "compiled-h200.json",
        "speed.py --models sd15 sdxl --sizes 1024 2048 --batch 1 --modes compile-cuda-graph --out FILE",
    ),
    timed(
        "overhead-h200.json",
        "speed.py --models sd15 sdxl --modes cuda-graph --batch 1 --bounds --rounds 7 --out FILE",
    ),
    timed("training-h200.json", "training.py --out FILE"),
    timed("batch.json", "batch.py --rounds 2 --out FILE", minutes=20),
    timed("beside.json", "beside.py --out FILE", minutes=5),
    result("reuse.json", 'reuse.py --out FILE --pictures 3 --keep 45 --shapes "SD 1.5"', minutes=60),
    timed("host.json", HOST, minutes=1),
    Made("benchmarks/results/host-before.json", f"benchmarks/{HOST}", 1, weights=False, commit="b98b128"),
    timed("compat.json", "compat.py ../compat", minutes=60),
    *(Made(f"flowers/{name}", CARD) for name in ("metrics.json", "contact-sheet.jpg", "sizes.jpg")),
    Made("docs/figures/lora.png", LORA, commit=WITH_TRAINER),
    Made("docs/figures/transformer.jpg", f"benchmarks/{TRANSFORMER}"),
    Made("docs/figures/why.json", "docs/figures/why.py --measure", minutes=4),
    Made("docs/figures/lines.json", "docs/figures/lines.py --measure", minutes=1),
    Made("docs/figures/demo.png", "-m todome demo --out FILE --force", minutes=2),
    Made("docs/figures/hero.jpg", "docs/figures/hero.py", minutes=16),
    Made("docs/figures/report.png", "docs/figures/report.py --work WORK/report", minutes=9),
    Made("src/todome/tools/app/example/example.json", "docs/figures/example.py", minutes=3),
    Made("docs/figures/page.jpg", "docs/figures/page.py", minutes=1),
    Made("examples/compare.ipynb", "make notebook", minutes=10),
    *map(Made, ("README.md", "flowers/README.md", "integrations/webui/README.md")),
    *(Made(f"docs/{page}.md") for page in PAGES),
    *map(Made, ("docs/transformers.md", "tests/flowers/test_quality.py", "tests/flowers/test_package.py")),
]
FIGURES = ("layers", "lines", "pareto", "speed", "tuning", "why")
DRAWN = ("benchmarks/gains.py", *(f"docs/figures/{name}.py" for name in FIGURES))


def stamps(path: Path) -> set[str]:
    """The weights that a file was made with: several where its parts were made at several times."""
    return {found.decode() for found in STAMP.findall(path.read_bytes())} if path.exists() else set()


@cache
def shipped() -> str:
    return todome_flowers.fingerprint()


def state(made: Made, root: Path = ROOT) -> str:
    if not (root / made.path).exists():
        return "missing"
    if not made.weights:
        return provenance((root / made.path).read_text())
    found = stamps(root / made.path)
    return "up to date" if found == {shipped()} else f"made with {', '.join(sorted(found)) or 'unknown'}"


def provenance(text: str) -> str:
    """When and with what results were made that no weights make out of date."""
    parts = {"of": set(DATE.findall(text)), "torch": set(TORCH.findall(text))}
    told = ", ".join(f"{name} {', '.join(sorted(found))}" for name, found in parts.items() if found)
    return told or "without a date"


def is_due(made: Made, root: Path) -> bool:
    found = state(made, root)
    return found == "missing" or (made.weights and found != "up to date")


def full_command(made: Made) -> list[str]:
    """The command with the file, and with the work folder of these weights: pictures of two trainings never mix."""
    words = [
        word.replace("WORK", f"{WORK}/{shipped()}").replace("FILE", made.path) for word in shlex.split(made.command)
    ]
    return words if words[0] == "make" else ["python", *words]


def show(chosen: Sequence[Made]) -> None:
    print(f"The weights that ship: {shipped()}")
    for made in chosen:
        print(f"{made.path:56} {made.who:8} {state(made)}")
        if made.command:
            print(f"    {shlex.join(full_command(made))}{f' at commit {made.commit}' * bool(made.commit)}")


def make_again(chosen: Sequence[Made], root: Path = ROOT) -> None:
    """What is out of date and runs on a CPU, one after the other: their times are shown to people."""
    due = [made for made in chosen if made.who == "CPU" and is_due(made, root)]
    for i, made in enumerate(due, start=1):
        print(f"{i} of {len(due)}: {made.path}, about {made.minutes} minutes on two cores", flush=True)
        run(full_command(made), root)
        if is_due(made, root):
            raise SystemExit(f"{made.path} is {state(made, root)} although {made.command!r} has run.")


def run(command: Sequence[str], root: Path = ROOT) -> None:
    """With the code that is there and with this Python."""
    python = [sys.executable] if command[0] == "python" else [command[0]]
    paths = os.pathsep.join([str(root / "src"), str(root / "flowers/src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run([*python, *command[1:]], cwd=root, env={**os.environ, "PYTHONPATH": paths}, check=True)


def filled(page: str) -> str:
    """A page whose tables are those of the results; one of a result that is still to be made has its mark alone."""

    def anew(mark: re.Match[str]) -> str:
        name, *files = mark[1].split()
        are_made = all((RESULTS / file).exists() for file in files)
        return f"<!-- table: {mark[1]} -->\n" + (f"\n{table(name, *files)}\n" if are_made else "")

    return MARK.sub(anew, page)


def fill_pages() -> None:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        before = path.read_text()
        if (after := filled(before)) != before:
            with atomic_write(path) as beside:
                beside.write_text(after)
            print(f"{path.relative_to(ROOT)}: other tables. Read what it says of them.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="make nothing")
    parser.add_argument("--tables", action="store_true", help="only the tables of the pages")
    parser.add_argument("--weights", action="store_true", help="print what files carry, as JSON")
    parser.add_argument("--only", nargs="+", help="ends of the names of some files")
    options = parser.parse_args()
    chosen = [made for made in MADE if not options.only or made.path.endswith(tuple(options.only))]
    if options.weights:
        print(json.dumps({"weights": shipped()}))
    elif options.tables:
        fill_pages()
    else:
        show(chosen)
        if not options.list:
            make_again(chosen)
            for script in DRAWN:
                run(["python", script])
            fill_pages()


if __name__ == "__main__":
    main()
