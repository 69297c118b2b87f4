"""What the refusal of a transformer says is on the page that it names."""

import re

from pages import ROOT

from todome.hosts.transformers import REASON

PAGE = "docs/transformers.md"


def figures_of(row: str) -> list[float]:
    line = next(line for line in (ROOT / PAGE).read_text().splitlines() if line.startswith(f"| {row}"))
    return [float(cell) for cell in line.split("|")[2:-1]]


def test_the_refusal_quotes_the_page():
    fixed, dithered, dense = map(int, re.findall(r"\b(8|16|39)\b", REASON))
    assert all(int(figure) == fixed for figure in figures_of("the corner of each 2 x 2 cell (ToDo)"))
    assert all(int(figure) == dithered for figure in figures_of("dithered keys, factor 2"))
    assert f"keeps {dense} dB with dithered keys at factor 2" in (ROOT / PAGE).read_text()


def test_the_page_has_the_name_that_the_refusal_gives_it():
    (name,) = re.findall(r"the page (\w+) of the documentation", REASON)
    assert f"  - {name}: transformers.md\n" in (ROOT / "mkdocs.yml").read_text()
    assert (ROOT / PAGE).read_text().startswith(f"# {name}\n")


def test_no_page_lists_a_transformer_as_supported_or_as_still_to_come():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("integrations/*/README.md")]
    assert len(pages) > 15
    for page in pages:
        sentences = re.split(r"[.|:]\s", " ".join(page.read_text().split()))
        named = [sentence for sentence in sentences if re.search(r"\b(SD3|FLUX|PixArt)\b", sentence)]
        assert not [sentence for sentence in named if re.search(r"\byet\b", sentence)], page
