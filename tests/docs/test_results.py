"""What was measured and made: each file has its command, pages show what the results say, nothing is out of date."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import todome_flowers
from pages import PAGES, ROOT

from todome.hosts.transformers import REASON

MARK = re.compile(r"<!-- table: ([^>]+) -->")


FOLDERS = ("*.md", "docs/**/*.md", "examples/*.md", "flowers/**/*.md", "integrations/**/*.md")


@pytest.fixture(scope="module")
def figures() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("figures")
    for name in ("figures", "tables"):
        sys.modules.pop(name, None)


def test_tables_of_the_pages_are_those_of_the_results(figures: Any):
    """The mark and the blank line before a table say that it is a whole one: nothing of an older one is below it."""
    assert [page for page in PAGES if figures.filled(text := (ROOT / page).read_text()) != text] == []


def test_a_table_of_a_result_that_is_not_made_yet_leaves_its_mark(figures: Any):
    mark = "One.\n\n<!-- table: host none.json -->\n"
    assert figures.filled(f"{mark}\n| old |\n|---|\n| older |\n\nTwo.\n") == f"{mark}\nTwo.\n"


def test_every_table_is_on_a_page(figures: Any):
    marks = {mark.split()[0] for page in PAGES for mark in MARK.findall((ROOT / page).read_text())}
    assert marks == importlib.import_module("tables").TABLES.keys()


def test_every_result_is_listed_with_the_command_that_makes_it(figures: Any, capsys: pytest.CaptureFixture[str]):
    results = {path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks/results").rglob("*") if path.is_file()}
    made = {one.path: one for one in figures.MADE}
    assert results <= made.keys()
    for path in results:
        assert made[path].commit or (ROOT / made[path].command.split()[0]).is_file(), path
    figures.show(figures.MADE)
    shown = capsys.readouterr().out
    assert all(path in shown for path in made)
    assert re.search(r"results/speed-h200\.json +GPU +of 20\d\d-\d\d-\d\d, torch \d", shown)


def test_everything_was_made_with_the_weights_that_ship(figures: Any):
    shipped = {todome_flowers.fingerprint()}
    found = {made.path: figures.stamps(ROOT / made.path) for made in figures.MADE if made.weights}
    assert {path: weights for path, weights in found.items() if weights != shipped} == {}


def test_every_file_that_carries_weights_is_known(figures: Any):
    """Whoever adds one adds it to the list, with the command that makes it."""
    folders = ("benchmarks/results/*", "docs/*.md", "docs/figures/*.*", "docs/hosts/*", "examples/*.*", "flowers/*.*")
    found = [path for folder in (*folders, "*.md", "integrations/*/*.*") for path in ROOT.glob(folder)]
    carrying = {path.relative_to(ROOT).as_posix() for path in found if path.is_file() and figures.stamps(path)}
    assert carrying <= {made.path for made in figures.MADE}


@pytest.fixture
def small(figures: Any, tmp_path: Path) -> list[Any]:
    """Files that are made in no time: the second is up to date, the last depends on no weights."""
    code = f"from pathlib import Path; Path('FILE').write_text('weights: {figures.shipped()}')"
    made = [figures.Made(name, f'-c "{code}"', minutes=1) for name in ("a.json", "b.json", "c.json")]
    made += [figures.Made("d.json", "-c 1/0"), figures.Made("e.md"), figures.Made("f.json", "-c 1/0", 1, weights=False)]
    (tmp_path / "a.json").write_text('{"weights": "0123456789abcdef"}')
    (tmp_path / "b.json").write_text(f'{{"weights": "{figures.shipped()}"}}')
    (tmp_path / "e.md").write_text("<!-- weights: unknown -->")
    (tmp_path / "f.json").write_text('{"date": "2026-11-15", "torch": "2.11.0"}')
    return made


def test_what_is_out_of_date_and_needs_no_gpu_is_made_again(figures: Any, small: Any, tmp_path: Path, capfd: Any):
    assert [figures.state(made, tmp_path) for made in small] == [
        "made with 0123456789abcdef",
        "up to date",
        "missing",
        "missing",
        "made with unknown",
        "of 2026-11-15, torch 2.11.0",
    ]
    before = (tmp_path / "b.json").stat().st_mtime_ns
    figures.make_again(small, tmp_path)
    assert len(capfd.readouterr().out.splitlines()) == 2
    assert [figures.state(made, tmp_path) for made in small[:3]] == ["up to date"] * 3
    assert (tmp_path / "b.json").stat().st_mtime_ns == before
    figures.make_again(small, tmp_path)
    assert capfd.readouterr().out == ""


def test_a_command_that_does_not_say_what_it_used_is_an_error(figures: Any, small: Any, tmp_path: Path):
    with pytest.raises(SystemExit, match=r"a\.json is made with 0123456789abcdef although '-c pass' has run"):
        figures.make_again([figures.Made("a.json", "-c pass", minutes=1)], tmp_path)


def test_links_between_pages_lead_somewhere():
    """In a repository browser; the site has checks of its own."""
    for page in (page for folder in FOLDERS for page in ROOT.glob(folder)):
        targets = [part.split(")")[0].partition("#")[0] for part in page.read_text().split("](")[1:]]
        assert [link for link in targets if "://" not in link and not (page.parent / link).exists()] == [], page


def test_the_refusal_of_a_transformer_quotes_the_results(figures: Any):
    """dB at 256 px with ToDo, dithered, and of the embedded UNet; and the page that it names is one."""
    read = importlib.import_module("tables").read
    rows = read(ROOT / "benchmarks/results/transformer-h200.json")["rows"]
    found = {row["method"]: row.get("psnr") for row in rows if row["px"] == 256}
    unet = read(ROOT / "benchmarks/results/fidelity-h200.json")["rows"]
    kept = next(row["psnr"] for row in unet if (row["px"], row["method"]) == (256, "dither 2"))
    assert [int(n) for n in re.findall(r"\b\d+\b", REASON)] == [
        round(found["todo:2"]),
        round(found["todome:2"]),
        round(kept),
    ]
    (name,) = re.findall(r"the page (\w+) of the documentation", REASON)
    assert f"  - {name}: transformers.md\n" in (ROOT / "mkdocs.yml").read_text()
