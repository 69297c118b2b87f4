"""What depends on the weights of the embedded model: which files are older than them, and how each is made again.

    python benchmarks/figures.py --list      which file was made with which weights, and what makes it
    python benchmarks/figures.py             makes again what is out of date and runs on a CPU, then does the tables
    python benchmarks/figures.py --tables    puts the tables of the results into the pages

Every such file carries the fingerprint of the weights it was made with (`todome_flowers.fingerprint`): being out of
date is a fact. An interrupted run goes on: what is made is not made again. What needs a GPU is made by hand with the
commands of the list, and pages are read again by people: their fingerprint says with which results they were compared.

A page has a line `<!-- speed_tables.py speed-h200.json 1 -->` before the first table of that script. A part that waits
for its results is a comment, `<!-- waits for other-h200.json` ... `-->`, in which `[speed_tables.py other-h200.json 1]`
stands where the table will be.
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

from todome.tools.files import atomic_write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
STAMP = re.compile(rb'weights(?:\0|"?: ?"?)([0-9a-f]{16}|unknown)')  # JSON, a page, a script; \0 in PNG files
WORK = "build/figures"  # what an interrupted command goes on from, in a folder for each weights


class Made(NamedTuple):
    """A file that depends on the weights, and the command that makes it; pages have none."""

    path: str
    command: str = ""
    gpu: bool = False
    minutes: int = 0  # on two cores, or on an H200

    @property
    def who(self) -> str:
        return "by hand" if not self.command else "GPU" if self.gpu else "CPU"


LPIPS, INCEPTION = "--lpips lpips.safetensors", "--inception inception.safetensors"
CARD = f"flowers/train/evaluate.py --pipeline flowers/src/todome_flowers/pipeline --run RUN {INCEPTION} --to flowers"
LORA = f"benchmarks/lora_study.py posters --work WORK/lora {LPIPS} {INCEPTION} --sheet docs/figures/lora.png"
ANCESTORS = f"{LPIPS} {INCEPTION} --real RUN/features.safetensors --prompts prompts.txt"
TRANSFORMER = "benchmarks/transformer.py PHOTOS --run RUN --seconds 480 --sheet docs/figures/transformer.jpg"
MADE = [
    Made("flowers/metrics.json", CARD, gpu=True, minutes=3),
    Made("flowers/contact-sheet.jpg", CARD, gpu=True, minutes=3),
    Made("flowers/sizes.jpg", CARD, gpu=True, minutes=3),
    Made(
        "benchmarks/results/fidelity-h200.json",
        f"benchmarks/fidelity.py --work WORK/fidelity --out FILE {LPIPS}",
        gpu=True,
        minutes=10,
    ),
    Made(
        "benchmarks/results/ancestors-h200.json",
        f"benchmarks/ancestors.py --work WORK/ancestors --out FILE {ANCESTORS}",
        gpu=True,
        minutes=25,
    ),
    Made("benchmarks/results/lora-study-h200.json", f"{LORA} --out FILE", gpu=True, minutes=8),
    Made("docs/figures/lora.png", f"{LORA} --out benchmarks/results/lora-study-h200.json", gpu=True, minutes=8),
    Made(
        "benchmarks/results/tuning-h200.json",
        "benchmarks/tuning.py --work WORK/tuning --out FILE --plans flowers/src/todome_flowers/plans/h200",
        gpu=True,
        minutes=10,
    ),
    Made(
        "benchmarks/results/layers.json",
        "benchmarks/layers.py --work WORK/layers --out FILE",
        gpu=True,
        minutes=5,
    ),
    Made("benchmarks/results/transformer-h200.json", f"{TRANSFORMER} --out FILE", gpu=True, minutes=10),
    Made(
        "docs/figures/transformer.jpg",
        f"{TRANSFORMER} --out benchmarks/results/transformer-h200.json",
        gpu=True,
        minutes=10,
    ),
    Made(
        "benchmarks/results/other-pictures.json",
        "benchmarks/other_pictures.py --work WORK/other-pictures --out FILE",
        minutes=15,
    ),
    Made("docs/figures/why.json", "docs/figures/why.py --measure", minutes=4),
    Made("docs/figures/demo.png", "-m todome demo --out FILE --force", minutes=2),
    Made("docs/figures/hero.jpg", "docs/figures/hero.py", minutes=16),
    Made("docs/figures/report.png", "docs/figures/report.py --work WORK/report", minutes=9),
    Made("src/todome/tools/app/example/example.json", "docs/figures/example.py", minutes=3),
    Made("docs/figures/page.jpg", "docs/figures/page.py", minutes=1),
    Made("examples/compare.ipynb", "make notebook", minutes=10),
    *map(Made, ("README.md", "flowers/README.md", "integrations/webui/README.md")),
    *(Made(f"docs/{page}.md") for page in ("index", "quality", "settings", "training", "migrating", "how-it-works")),
    *map(Made, ("docs/transformers.md", "tests/flowers/test_quality.py", "tests/flowers/test_package.py")),
]
DRAWN = tuple(f"docs/figures/{name}.py" for name in ("layers", "pareto", "tuning", "why"))  # from results, in seconds


def stamps(path: Path) -> set[str]:
    """The weights that a file was made with: several where its parts were made at several times."""
    return {found.decode() for found in STAMP.findall(path.read_bytes())} if path.exists() else set()


@cache
def shipped() -> str:
    return todome_flowers.fingerprint()


def state(made: Made) -> str:
    found = stamps(ROOT / made.path)
    if found == {shipped()}:
        return "up to date"
    if not (ROOT / made.path).exists():
        return "missing"
    return f"made with {', '.join(sorted(found)) or 'unknown'}"


def full_command(made: Made) -> list[str]:
    """The command with the file, and with the work folder of these weights: pictures of two trainings never mix."""
    words = [
        word.replace("WORK", f"{WORK}/{shipped()}").replace("FILE", made.path) for word in shlex.split(made.command)
    ]
    return words if words[0] == "make" else [sys.executable, *words]


def show(chosen: Sequence[Made]) -> None:
    print(f"The weights that ship: {shipped()}")
    for made in chosen:
        print(f"{made.path:44} {made.who:8} {state(made)}")
    for command in dict.fromkeys(made.command.replace("FILE", made.path) for made in chosen if made.gpu):
        print(f"  on a GPU: python {command}")


def make_again(chosen: Sequence[Made]) -> None:
    """What is out of date and runs on a CPU, one after the other: their times are shown to people."""
    due = [made for made in chosen if made.who == "CPU" and state(made) != "up to date"]
    for i, made in enumerate(due, start=1):
        print(f"{i} of {len(due)}: {made.path}, about {made.minutes} minutes on two cores", flush=True)
        run(full_command(made))
        if state(made) != "up to date":
            raise SystemExit(f"{made.path} is {state(made)} although {made.command!r} has run.")
    for script in DRAWN:
        run([sys.executable, script])
    fill_pages()


def run(command: Sequence[str]) -> None:
    """From the root of the repository, with the code that is there."""
    paths = [str(ROOT / "src"), str(ROOT / "flowers/src"), os.environ.get("PYTHONPATH", "")]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=True)


@cache
def tables_of(script: str, results: str) -> list[str]:
    """What a script makes of the results, table by table."""
    command = [sys.executable, f"benchmarks/{script}", str(RESULTS / results)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return made.stdout.strip().split("\n\n")


def filled(page: str) -> str:
    """A page whose tables are those of the results, with the parts whose results are there by now."""

    def revealed(part: re.Match[str]) -> str:
        name, text = part.groups()
        return (
            re.sub(r"^\[(\w+\.py \S+ \d+)\]$", r"<!-- \1 -->\n", text, flags=re.M)
            if (RESULTS / name).exists()
            else part[0]
        )

    def table(mark: re.Match[str]) -> str:
        script, results, number = mark.groups()
        return f"<!-- {script} {results} {number} -->\n\n{tables_of(script, results)[int(number) - 1]}\n"

    page = re.sub(r"<!-- waits for (\S+)\n(.*?)\n-->", revealed, page, flags=re.S)
    return re.sub(r"<!-- (\w+\.py) (\S+) (\d+) -->\n\n?(?:\|.*\n)*", table, page)


def fill_pages() -> None:
    for path in sorted((ROOT / "docs").glob("*.md")):
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


if __name__ == "__main__":
    main()
