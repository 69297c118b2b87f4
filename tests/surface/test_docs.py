"""What the documentation quotes is what was measured, and what it shows is what the code draws."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import small_unet, tiny_pipeline

import todome
from todome.measuring.speed import Case, read_bench

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("script", "results", "page", "count"),
    [
        ("overhead_tables.py", "overhead-h200.json", "speed.md", 1),
        ("speed_tables.py", "speed-h200.json", "speed.md", 4),
        ("fidelity_tables.py", "fidelity-h200.json", "quality.md", 2),
        ("ancestors_tables.py", "ancestors-h200.json", "quality.md", 2),
    ],
)
def test_tables_are_the_committed_results(script: str, results: str, page: str, count: int):
    command = [sys.executable, f"benchmarks/{script}", f"benchmarks/results/{results}"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    tables = made.stdout.strip().split("\n\n")
    assert len(tables) == count
    for table in tables:
        assert table in (ROOT / "docs" / page).read_text()


def test_what_is_said_of_dithering_is_what_was_measured():
    rows = json.loads((ROOT / "benchmarks/results/fidelity-h200.json").read_text())["rows"]
    found = {(r["px"], r["scheduler"], r["steps"], r["method"]): r["psnr"] for r in rows if r["taken"] == r["steps"]}
    conditions = [key[:3] for key in found if key[3] == "dither 2"]
    gains = {
        (condition, factor): found[(*condition, f"dither {factor}")] - found[(*condition, f"fixed {factor} (ToDo)")]
        for condition in conditions
        for factor in (2, 4)
    }
    usual = [gain for (condition, _), gain in gains.items() if condition[1:] in [("dpm++", 25), ("ddim", 25)]]
    assert "12 to\n16 dB closer" in (ROOT / "README.md").read_text()
    assert 12 <= round(min(usual)) <= round(max(usual)) <= 16
    others = [gain for (condition, _), gain in gains.items() if condition[1:] in [("euler-a", 25), ("dpm++", 10)]]
    assert "7 to 11 dB with Euler ancestral and with only 10 steps" in (ROOT / "docs/quality.md").read_text()
    assert 7 <= min(others) <= max(others) <= 11.5


def test_the_model_card_quotes_its_metrics():
    metrics = json.loads((ROOT / "flowers/metrics.json").read_text())
    card = (ROOT / "flowers/README.md").read_text()
    assert f"| {metrics['fid']:.1f} |" in card
    per_kind = ", ".join(f"{kind} {100 * share:.1f}" for kind, share in metrics["kind_found_per_kind"].items())
    assert f"{100 * metrics['kind_found']:.1f} % ({per_kind})" in card


def test_host_costs_are_the_committed_results():
    rows = json.loads((ROOT / "benchmarks/results/host.json").read_text())["rows"]
    cost = {row["method"]: row["extra_us"] for row in rows}
    page = (ROOT / "docs/speed.md").read_text()
    assert f"todome adds {cost['todome dithered']} µs" in page
    assert f"`Merge` {cost['todome Merge 0.5']} µs, tomesd {cost['tomesd 0.5']} µs" in page


def replayed(model: str, method: str, pictures: int = 1) -> list[float]:
    """The speed-ups of a method at the five sizes, where its name may hold the factor as F."""
    found = read_bench(ROOT / "benchmarks/results/speed-h200.json")
    cases = [Case(model, (px, px), pictures, "cuda-graph") for px in FACTORS]
    names = [method.replace("F", str(FACTORS[case.size[0]])) for case in cases]
    rows = [row for case, name in zip(cases, names, strict=True) for row in found.of(case) if row.method == name]
    return [row.speedup for row in rows if row.speedup is not None]


FACTORS = {512: 2, 768: 2, 1024: 2, 1536: 3, 2048: 4}


@pytest.mark.parametrize(
    ("head", "model", "method"),
    [
        ("SD 1.5", "sd15", "todome:F"),
        ("SD 2.1", "sd21", "todome:F"),
        ("SDXL", "sdxl", "todome:F"),
        ("SDXL, levels 1 + 2", "sdxl", "todome:F,2"),
        ("tomesd 0.5 on SD 1.5", "sd15", "tomesd:0.5"),
    ],
)
def test_readme_quotes_the_committed_results(head: str, model: str, method: str):
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {head} |"))
    quoted = [cell.strip(" *") for cell in line.split("|")[2:-1]]
    assert quoted == [f"{speedup:.2f}x" for speedup in replayed(model, method)]


@pytest.mark.parametrize("model", ["sd15", "sd21", "sdxl"])
@pytest.mark.parametrize("pictures", [1, 4])
def test_todome_is_ahead_of_merging_at_every_size(model: str, pictures: int):
    assert "ahead of tomesd and of its own Merge at every size" in (ROOT / "docs/speed.md").read_text()
    for peer in ("tomesd:0.5", "tome:0.5"):
        pairs = zip(replayed(model, "todome:F", pictures), replayed(model, peer, pictures), strict=True)
        assert all(ours > theirs for ours, theirs in pairs)


def test_what_is_said_of_fid_is_what_was_measured():
    rows = json.loads((ROOT / "benchmarks/results/ancestors-h200.json").read_text())["tome"]["rows"]
    fid = {row["method"]: f"{row['fid']:.1f}" for row in rows}
    said = f"{fid['todome:2']} against {fid['dense']} for dense and {fid['tome:0.5']} for ToMe"
    assert said in " ".join((ROOT / "README.md").read_text().split())


def test_readme_snippet_runs(capsys):
    """The one that uses what is there; the other one downloads a model."""
    snippets = [part.split("```")[0] for part in (ROOT / "README.md").read_text().split("```python\n")[1:]]
    pipe = tiny_pipeline(unet=small_unet())
    exec(snippets[1], {"todome": todome, "pipe": pipe, "unet": pipe.unet, "scheduler": pipe.scheduler})
    assert "level 1" in capsys.readouterr().out
    assert "step" not in vars(pipe.scheduler)


def test_figure_is_what_the_code_draws(tmp_path):
    script = tmp_path / "dither.py"
    script.write_text((ROOT / "docs/figures/dither.py").read_text())
    subprocess.run([sys.executable, script], check=True)
    assert (tmp_path / "dither.svg").read_text() == (ROOT / "docs/figures/dither.svg").read_text()


@pytest.mark.parametrize("name", ["pareto", "speed"])
def test_plots_are_what_the_results_draw(tmp_path, name: str):
    made = tmp_path / f"{name}.svg"
    subprocess.run([sys.executable, ROOT / f"docs/figures/{name}.py", made], check=True)
    assert made.read_text() == (ROOT / f"docs/figures/{name}.svg").read_text()


FOLDERS = ("*.md", "docs/**/*.md", "flowers/**/*.md", "integrations/**/*.md")
PAGES = sorted(page.relative_to(ROOT).as_posix() for folder in FOLDERS for page in ROOT.glob(folder))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text()
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    for link in links:
        if "://" not in link and not link.startswith("#"):
            assert ((ROOT / page).parent / link).exists(), link
