"""`todome explain`: levels and a verdict, for a size and a factor."""

import re
from pathlib import Path

import pytest

VERDICT = r"\n(Pays: a step is|Pays little,|Not worth it here,) [\d.]+x"


def levels(text: str) -> list[tuple[str, ...]]:
    """Keys, what is left of them, and the share of a step, level by level."""
    return re.findall(r"level \d, \d layers: (\w+) = \d+ keys(?: -> |, )(\w+); attention over them is [\d.]+%", text)


@pytest.mark.thorough
def test_a_pipeline_at_its_own_size(run, folder):
    Path("tiny").symlink_to(folder)
    result = run("explain", "tiny", "--device", "cpu")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert result.stdout.startswith("tiny, 32x32 pixels, one picture with guidance, 1 thread of a CPU\nDownsample(")
    assert levels(result.stdout) == [("16x16", "64"), ("8x8", "dense")]
    assert re.search(VERDICT, result.stdout)
    assert "this is what factor=2 would do" in result.stdout


@pytest.mark.usefixtures("small_sd15")
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("sd15 --size 100x64", 1, "Width 100 does not work: this model needs multiples of 16."),
        ("sd15 --size 64x", 2, "Invalid value for --size: '64x' is not a size"),
        ("sd15 --factor two", 2, "Invalid value for --factor: 'two' is not a number"),
    ],
)
def test_what_cannot_be_explained(refused, words, code, text):
    assert refused("explain", *words.split(), code=code).startswith(text)
