"""The page in a real browser: draw, look, compare, stop, reload, tune; start from a picture; two tabs; in the dark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from todome import Plan
from todome.tools.generate import settings_of

pytestmark = pytest.mark.xdist_group("pages")

UNNAMED = """() => [...document.querySelectorAll("input, textarea, button, summary, a, progress, img")]
  .filter((part) => part.checkVisibility() || part.type === "radio")
  .filter((part) => !part.labels?.length && !part.ariaLabel && !part.textContent.trim() && !part.hasAttribute("alt")
    && !part.querySelector("[aria-label]"))
  .map((part) => part.outerHTML)"""
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
LAPTOP, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}
STOPPED = "Stopped. Nothing of this run is kept."
STEPS, TULIPS = "Size, steps and seed", "a field of red tulips"


@pytest.fixture
def visit(browser: Any, pages: Any) -> Iterator[Callable[..., Any]]:
    """Opens a tab. Whatever it does, it keeps quiet and asks nobody else."""
    contexts, said, asked = [], [], []

    def visit(**options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(90_000)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(pages.open)
        tab.locator(".finding").wait_for()
        return tab

    yield visit
    for context in contexts:
        context.close()
    assert not [text for text in said if "Vega-Lite v" not in text]  # gradio's own plots say that they are old
    assert not [url for url in asked if not url.startswith((pages.open, "data:", "blob:"))]


def set_numbers(tab: Any, **values: float) -> None:
    """Until they stay: on a busy machine the page may still be about to fill in what it begins with."""
    for _ in range(100):
        fields = {name.replace("_", " "): value for name, value in values.items()}
        shown = {name: tab.get_by_label(f"number input for {name}") for name in fields}
        wrong = [name for name, value in fields.items() if shown[name].input_value() != str(value)]
        if not wrong:
            return
        for name in wrong:
            shown[name].fill(str(fields[name]))
            shown[name].press("Tab")
        tab.wait_for_timeout(300)
    pytest.fail(f"They do not stay at {values}.")


def make_it_small(tab: Any, steps: int = 2, side: int = 64) -> None:
    if not tab.get_by_label("number input for Width").is_visible():
        tab.get_by_role("button", name=STEPS).click()
    set_numbers(tab, Width=side, Height=side, Steps=steps)


def prompt(tab: Any) -> Any:
    return tab.get_by_label("Prompt", exact=True)


def draw(tab: Any, words: str, button: str = "#draw") -> None:
    prompt(tab).fill(words)
    tab.locator(button).click()
    tab.locator(".caption b").get_by_text(words, exact=True).wait_for()
    tab.locator(".progress").wait_for(state="detached")


def pictures(tab: Any) -> list[str]:
    return tab.locator("#pictures .caption-label").all_inner_texts()


def download(tab: Any, file: Path, button: Any) -> str:
    with tab.expect_download() as found:
        button.click()
    found.value.save_as(file)
    return found.value.suggested_filename


def test_a_visit(visit, tmp_path):
    tab = visit(viewport=LAPTOP)
    assert tab.locator(".label").inner_text().startswith("An example, drawn before with todome-flowers on ")
    assert tab.locator(".finding").inner_text().endswith("visible difference.")
    make_it_small(tab, steps=60, side=256)
    it_can_be_stopped(tab)
    make_it_small(tab)
    draw(tab, "<b>${1 + 1}</b> {{ 7 * 7 }}")
    assert pictures(tab) == ["full attention", "todome 2", "difference x8, todome 2"]
    assert tab.evaluate(UNNAMED) == []
    the_pictures_can_be_looked_at(tab)
    draw(tab, TULIPS, "#compare")
    names = ["full attention", "todome 2", "ToDo 2", "ToMe 0.5"]
    assert [row.split("\n")[0] for row in tab.locator(".methods tbody th").all_inner_texts()] == names
    tab.get_by_text("Download", exact=True).click()
    link = tab.get_by_role("link", name="Download ToMe 0.5", exact=True)
    assert download(tab, tmp_path / "picture.png", link) == "a-field-of-red-tulips-0-tome.png"
    made = settings_of(tmp_path / "picture.png")
    assert (made.prompt, made.size, made.steps) == (TULIPS, (64, 64), 2)
    tab.reload()
    tab.locator(".caption b").get_by_text(TULIPS).wait_for()
    assert prompt(tab).input_value() == TULIPS
    a_run_comes_back(tab)
    tab.get_by_role("button", name="Delete all runs").click()
    tab.get_by_text("All runs and pictures are deleted.").wait_for()
    assert not tab.locator("#history").is_visible()


def it_can_be_stopped(tab: Any) -> None:
    tab.locator("#draw").click()
    tab.locator(".progress img").wait_for()
    tab.locator(".progress .left").get_by_text("left.").wait_for()
    tab.locator("#stop").click()
    tab.get_by_text(STOPPED).wait_for()
    assert tab.locator(".progress").count() == 0
    assert not tab.locator("#history").is_visible()


def the_pictures_can_be_looked_at(tab: Any) -> None:
    slider = tab.locator("#slider")
    assert slider.locator("label").inner_text().strip() == "full attention | todome 2"
    loaded = "images => images.length > 1 && images.every((image) => image.naturalWidth > 0)"
    assert slider.locator("img").evaluate_all(loaded)
    tab.locator("#pictures button").nth(2).press("Enter")
    slider.get_by_text("full attention | difference x8, todome 2").wait_for()
    tab.get_by_role("button", name="In Python").click()
    assert "todome.apply(pipe, todome.Downsample(" in tab.locator("#snippet").inner_text()


def a_run_comes_back(tab: Any) -> None:
    assert tab.locator("#history button").count() == 2
    tab.locator("#history button").nth(1).click()
    tab.locator(".caption b").get_by_text("<b>${1 + 1}</b> {{ 7 * 7 }}", exact=True).wait_for()
    assert prompt(tab).input_value() == "<b>${1 + 1}</b> {{ 7 * 7 }}"


@pytest.mark.thorough
def test_a_tuning(visit, tmp_path):
    tab = visit(viewport=LAPTOP)
    make_it_small(tab)
    tab.get_by_role("tab", name="Tune").click()
    set_numbers(tab, dB_to_full_attention=60)
    tab.locator("#tune").click()
    tab.locator("#tune-layers .methods").wait_for()
    tab.locator("#tune-stop").click()
    tab.get_by_text("Stopped. What was measured until then is kept").wait_for()
    assert tab.locator("#tune-result .finding").count() == 0
    tab.get_by_text("Be fast", exact=True).click()
    tab.locator("#tune").click()
    found = tab.locator("#tune-result .finding")
    found.wait_for()
    assert "dB to dense" in found.inner_text()
    assert [cell for cell in tab.locator("#tune-layers td:last-child").all_inner_texts() if cell not in ("", "1")]
    tab.locator("#tune-plot canvas, #tune-plot svg").first.wait_for()
    assert tab.evaluate(UNNAMED) == []
    download(tab, tmp_path / "plan.json", tab.locator("#plan-file"))
    plan = Plan.load(tmp_path / "plan.json")
    assert plan.conditions["size"] == [64, 64]
    for size in (LAPTOP, PHONE):
        tab.set_viewport_size(size)
        assert not tab.evaluate(WIDER)
    tab.reload()
    tab.get_by_role("tab", name="Tune").click()
    found.wait_for()
    tab.locator("#apply").click()
    draw(tab, "tuned")
    tab.get_by_text("Download", exact=True).click()
    download(tab, tmp_path / "picture.png", tab.get_by_role("link", name="Download your plan", exact=True))
    made = settings_of(tmp_path / "picture.png")
    assert (made.reduction, made.size, made.steps) == (plan, (64, 64), 2)


@pytest.mark.thorough
def test_two_tabs_at_once_one_of_them_on_a_phone_in_the_dark(visit):
    light, dark = visit(), visit(color_scheme="dark", viewport=PHONE, has_touch=True)
    assert not dark.evaluate(WIDER)
    make_it_small(dark)
    make_it_small(light, steps=60, side=256)
    light.locator("#draw").click()
    light.locator(".progress img").wait_for()
    a_run_that_waits_is_stopped(dark)
    prompt(dark).fill("white daisies")
    dark.locator("#draw").click()
    light.locator("#stop").click()
    light.get_by_text(STOPPED).wait_for()
    dark.locator(".caption b").get_by_text("white daisies").wait_for()
    assert not dark.evaluate(WIDER)
    assert light.locator(".caption b").inner_text() != "white daisies"
    light.reload()
    light.locator(".caption b").get_by_text("white daisies").wait_for()  # every tab has all runs
    paper = [tab.evaluate("getComputedStyle(document.body).backgroundColor") for tab in (light, dark)]
    assert paper == ["rgb(251, 250, 247)", "rgb(21, 22, 20)"]


def a_run_that_waits_is_stopped(tab: Any) -> None:
    prompt(tab).fill("never drawn")
    tab.locator("#draw").click()
    tab.get_by_text("It is drawn as soon as").wait_for()
    tab.locator("#stop").click()
    tab.get_by_text(STOPPED).wait_for()


@pytest.mark.thorough
def test_a_picture_to_start_from(visit, pages, tmp_path):
    Image.new("RGB", (300, 200), "red").save(tmp_path / "red.png")
    (tmp_path / "none.png").write_text("no picture")
    tab = visit(viewport=LAPTOP)
    make_it_small(tab)
    tab.get_by_role("button", name="Start from a picture of yours").click()
    choose, told = tab.locator("[data-file='picture']"), tab.locator("#uploaded")
    choose.set_input_files(tmp_path / "none.png")
    told.get_by_text("This picture cannot be used: it must be a picture as PNG").wait_for()
    choose.set_input_files(tmp_path / "red.png")
    told.get_by_text("Draw starts from your picture (256 x 171), cut to the size that is set; all of it").wait_for()
    draw(tab, "all of it")
    assert "from a picture" in tab.locator(".caption").first.inner_text()
    tab.locator(".upload canvas").scroll_into_view_if_needed()
    box = tab.locator(".upload canvas").bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 2 + 20, box["y"] + box["height"] / 2, steps=3)
    tab.mouse.up()
    told.get_by_text("the part you painted is drawn anew").wait_for()
    draw(tab, "a part")
    (made,) = pages.files.rglob("a-part-0-dense.png")
    with Image.open(made) as picture:
        assert picture.size == (64, 64)
        corner = np.asarray(picture.convert("RGB"))[60, 2]
    assert corner[0] > 180
    assert corner[1:].max() < 90  # what was not painted is still red
    tab.get_by_role("button", name="Remove the picture").click()
    told.get_by_text("Draw starts").wait_for(state="detached")
    tab.locator("#history button").nth(1).click()
    told.get_by_text("all of it is drawn anew").wait_for()
