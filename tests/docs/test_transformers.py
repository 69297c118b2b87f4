"""What the refusal of a transformer says is on the page that it names."""

import json
import re

from pages import ROOT

from todome.hosts.transformers import REASON

PAGE = "docs/transformers.md"


def psnr(method: str) -> float:
    """At 256 px, to the transformer's own dense pictures."""
    rows = json.loads((ROOT / "benchmarks/results/transformer-h200.json").read_text())["rows"]
    return next(row["psnr"] for row in rows if (row["method"], row["px"]) == (method, 256))


def test_the_refusal_and_the_page_quote_what_was_measured():
    fixed, dithered, dense = map(int, re.findall(r"\b(\d+)\b", REASON))
    assert (fixed, dithered) == (round(psnr("todo:2")), round(psnr("todome:2")))
    page = " ".join((ROOT / PAGE).read_text().split())
    assert f"keeps {dense} dB with dithered keys at factor 2" in page
    closer = round(psnr("dense:21") - psnr("todome:2"))
    assert f"21 dense steps instead of 30 are as fast, and {closer} dB closer" in page


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
