"""What the documentation quotes is what was measured, and what it shows is what the code draws."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import small_unet, tiny_pipeline

import todome

ROOT = Path(__file__).parents[2]


def test_speed_tables_are_the_committed_results():
    results = "benchmarks/results/overhead-h200.json"
    made = subprocess.run(
        [sys.executable, "benchmarks/tables.py", results], cwd=ROOT, capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs/speed.md").read_text()
    tables = made.stdout.strip().split("\n\n")
    assert len(tables) == 3
    for table in tables:
        assert table in page


def test_host_costs_are_the_committed_results():
    rows = json.loads((ROOT / "benchmarks/results/host.json").read_text())["rows"]
    cost = {row["method"]: row["extra_us"] for row in rows}
    page = (ROOT / "docs/speed.md").read_text()
    assert f"todome adds {cost['todome dithered']} µs" in page
    assert f"`Merge` {cost['todome Merge 0.5']} µs, tomesd {cost['tomesd 0.5']} µs" in page


def test_readme_quotes_the_committed_results():
    rows = json.loads((ROOT / "benchmarks/results/overhead-h200.json").read_text())["rows"]
    readme = (ROOT / "README.md").read_text()
    for head, model, method in [
        ("SD 1.5", "sd15", "todome dithered"),
        ("SDXL", "sdxl", "todome dithered"),
        ("tomesd 0.5 on SD 1.5", "sd15", "tomesd 0.5"),
    ]:
        mine = [r for r in rows if (r["model"], r["method"], r["mode"]) == (model, method, "replay")]
        line = next(line for line in readme.splitlines() if line.startswith(f"| {head} |"))
        quoted = [cell.strip(" *") for cell in line.split("|")[2:-1]]
        assert quoted[: len(mine)] == [f"{row['speedup']:.2f}x" for row in mine]


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


PAGES = sorted(page.relative_to(ROOT).as_posix() for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text()
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    for link in links:
        if "://" not in link and not link.startswith("#"):
            assert ((ROOT / page).parent / link).exists(), link
