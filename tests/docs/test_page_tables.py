"""Tables of the pages are those of the committed results, and links between pages lead somewhere."""

import importlib
import re
import sys
from typing import Any

import pytest
from fresh import TORCH, python_after
from pages import ROOT


@pytest.fixture(scope="module")
def figures() -> Any:
    """What knows the tables of the pages, and makes each of them once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        patch.setattr(sys, "executable", python_after(TORCH))
        yield importlib.import_module("figures")
    sys.modules.pop("figures", None)


TABLES = sorted(path.name for path in (ROOT / "benchmarks").glob("*_tables.py"))


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_tables_are_the_committed_results(figures: Any, page: str):
    text = (ROOT / "docs" / page).read_text()
    assert figures.filled(text) == text


@pytest.mark.parametrize("script", TABLES)
def test_every_table_of_the_results_is_on_a_page(figures: Any, script: str):
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    marks = re.findall(rf"<!-- {script} (\S+) (\d+) -->", pages)
    assert marks or f"[{script} " in pages  # or its results are not there yet
    for results in {name for name, _ in marks}:
        count = len(figures.tables_of(script, results))
        assert {int(number) for name, number in marks if name == results} == set(range(1, count + 1))


FOLDERS = ("*.md", "docs/**/*.md", "examples/**/*.md", "flowers/**/*.md", "integrations/**/*.md")


PAGES = sorted(page.relative_to(ROOT).as_posix() for folder in FOLDERS for page in ROOT.glob(folder))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"<!--.*?-->", "", (ROOT / page).read_text(), flags=re.DOTALL)  # what waits for results
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    for link in links:
        if "://" not in link and not link.startswith("#"):
            assert ((ROOT / page).parent / link.partition("#")[0]).exists(), link
