"""What the page "How it works" says of the code is so: names are where they are said to be, calls are in that order."""

import importlib
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from pages import ROOT
from zoo import mini_unet, run, unet_inputs

import todome

PAGE = (ROOT / "docs/how-it-works.md").read_text()
CORE = Path(todome.__file__).parent
STEP = re.compile(r"^\| \d+ \| `([\w.]+)` \| `([\w/.]+)` \|", re.MULTILINE)
PLACE = re.compile(r"`([A-Za-z_.]+)`\s+in\s+`([a-z_/]+\.py)`")


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def named(name: str, file: str) -> Any:
    value = importlib.import_module(f"todome.{file.removesuffix('.py').replace('/', '.')}")
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_every_name_is_in_the_file_that_is_said():
    found = [*PLACE.findall(PAGE), *STEP.findall(PAGE)]
    assert len(found) > 25
    for name, file in found:
        assert CORE / file == Path(sys.modules[named(name, file).__module__].__file__ or ""), name


def test_every_file_of_the_core_that_the_page_names_is_there():
    for file in re.findall(r"`((?:hooks|hosts|levers|steps|tokens)/\w+\.py)`", PAGE):
        assert (CORE / file).is_file(), file


def test_every_state_has_an_owner_a_file_and_an_end():
    rows = re.findall(r"^\| (.*) \|$", section("Who owns what, and until when"), re.MULTILINE)[2:]
    for owner, state, where, end in (row.split(" | ") for row in rows):
        assert owner in ("patch", "run", "call"), state
        assert PLACE.search(where), state
        assert end, state


def test_a_call_goes_through_the_functions_in_the_order_of_the_page():
    """With the table being there already, as in all calls but the first."""
    steps = STEP.findall(section("One attention call, in one direction"))
    codes = [named(*step).__code__ for step in steps]
    model = mini_unet()
    todome.apply(model, todome.Downsample(factor=2))
    run(model, **unet_inputs())
    entered = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes and frame.f_code not in entered:
            entered.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run(model, **unet_inputs())
    finally:
        sys.setprofile(before)
    assert [code.co_name for code in entered] == [name.split(".")[-1] for name, _ in steps]
    assert entered == codes
