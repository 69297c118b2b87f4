"""The page in a real browser: draw, compare, restore, reload, stop, start from a picture, two visitors, the dark."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tabs import Heard, close, opened, reload

from todome.tools.generate import settings_of

UNNAMED = """() => [...document.querySelectorAll("input, textarea, button, summary, a, progress, img, svg[role]")]
  .filter((part) => part.checkVisibility() || part.type === "radio")
  .filter((part) => !part.labels?.length && !part.ariaLabel && !part.textContent.trim() && !part.hasAttribute("alt"))
  .map((part) => part.outerHTML)"""
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
HURRIED = """(() => {
  const usual = window.setTimeout;
  window.setTimeout = (call, ms, ...words) => usual(call, ms === 3000 ? 300 : ms, ...words);
})()"""
LAPTOP, DESK, PHONE = ({"width": w, "height": h} for w, h in ((1280, 720), (1440, 900), (390, 844)))
FOLD = "Size, steps and seed"


@pytest.fixture
def visit(browser: Any, pages: Any) -> Iterator[Callable[..., Any]]:
    """Opens the page, as often as there are visitors. Whatever it does, it keeps quiet and asks nobody else."""
    contexts, heard = [], Heard([], [])

    def visit(**options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        tab = opened(contexts[-1], pages.open, heard)
        wait_until_ready(tab)
        return tab

    yield visit
    for context in contexts:
        close(context)
    assert not heard.said
    assert not [url for url in heard.asked if not url.startswith((pages.open, "data:", "blob:"))]


def wait_until_ready(tab: Any) -> None:
    tab.locator("#draw:enabled").wait_for()
    tab.get_by_text(re.compile("^About .* on this machine")).wait_for()


def set_numbers(tab: Any, **values: int) -> None:
    """Until they stay: on a busy machine the page may still be about to fill in what it begins with."""
    for _ in range(100):
        wrong = [name for name, value in values.items() if numbers_shown(tab, name) != [str(value)] * 2]
        if not wrong:
            return
        for name in wrong:
            field = tab.get_by_label(f"number input for {name}")
            field.fill(str(values[name]))
            field.press("Tab")
        tab.wait_for_timeout(300)
    pytest.fail(f"They do not stay at {values}.")


def numbers_shown(tab: Any, name: str) -> list[str]:
    return [tab.get_by_label(f"{kind} for {name}").input_value() for kind in ("number input", "range slider")]


def make_it_small(tab: Any, steps: int = 2, side: int = 64) -> None:
    tab.get_by_role("button", name=FOLD).click()
    set_numbers(tab, Width=side, Height=side, Steps=steps)


def draw(tab: Any, number: int = 1, button: str = "#draw") -> None:
    tab.locator(button).click()
    tab.locator(f"[data-run='{number}'][aria-current]").wait_for()
    tab.locator("#draw:enabled").wait_for()


def delete_all(tab: Any) -> None:
    """When the pictures are there: one that goes while it is loaded is an error in the console."""
    tab.wait_for_function("[...document.images].every((image) => image.complete)")
    tab.get_by_role("button", name="Delete them now").click()
    tab.get_by_text("Your runs and pictures are deleted.").wait_for()


def visible_together(tab: Any, *selectors: str) -> bool:
    """Whether all of each is on the screen, without scrolling."""
    height = tab.viewport_size["height"]
    boxes = [tab.locator(selector).first.bounding_box() for selector in selectors]
    return all(box["y"] >= 0 and box["y"] + box["height"] <= height for box in boxes)


def test_a_visit(visit, tmp_path):
    tab = visit(viewport=LAPTOP)
    the_example_is_seen(tab)
    assert tab.evaluate(UNNAMED) == []
    make_it_small(tab)
    tab.get_by_role("button", name=FOLD).click()
    draw(tab)
    for size in (LAPTOP, DESK):
        tab.set_viewport_size(size)
        assert visible_together(tab, "#views", ".frame", ".finding", ".figures", ".history")
    the_slider_moves(tab)
    the_file_has_the_settings(tab, tmp_path)
    every_method_is_compared(tab)
    a_run_comes_back_with_its_view(tab)
    assert tab.evaluate(UNNAMED) == []
    reload(tab)
    tab.locator("[data-run='2'][aria-current]").wait_for()  # the newest is shown
    assert tab.locator("[data-run]").count() == 2
    delete_all(tab)
    assert tab.locator("[data-run]").count() == 0


def the_example_is_seen(tab: Any) -> None:
    assert visible_together(tab, ".frame", ".label", ".finding")
    assert tab.locator(".label").inner_text().startswith("An example, drawn before with todome-flowers on ")
    assert tab.locator(".finding").inner_text().endswith("visible difference.")
    loaded = tab.locator(".frame img").evaluate_all("images => images.map((image) => image.naturalWidth > 0)")
    assert loaded == [True, True, True]


def the_slider_moves(tab: Any) -> None:
    frame, slider = tab.locator(".frame"), tab.get_by_label("Full attention to the left, todome 2 to the right")
    box = frame.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 4, box["y"] + 20, steps=3)
    tab.mouse.up()
    assert abs(float(slider.input_value()) - 25) <= 2
    assert frame.evaluate("frame => frame.style.getPropertyValue('--at')") == f"{slider.input_value()}%"
    slider.press("End")
    assert frame.evaluate("frame => frame.style.getPropertyValue('--at')") == "100%"


def the_file_has_the_settings(tab: Any, tmp_path: Path) -> None:
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download todome 2").click()
    assert download.value.suggested_filename == "a-field-of-red-tulips-0-todome.png"
    download.value.save_as(tmp_path / "picture.png")
    settings = settings_of(tmp_path / "picture.png")
    assert (settings.prompt, settings.size, settings.steps) == ("a field of red tulips", (64, 64), 2)
    tab.get_by_text("As a command").click()
    code = tab.locator("#more details code").first
    assert "todome generate --size=64x64 --steps=2" in code.inner_text()
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download a-field-of-red-tulips-0-todome.sh").click()
    download.value.save_as(tmp_path / "command.sh")
    assert (tmp_path / "command.sh").read_text() == code.inner_text()


def every_method_is_compared(tab: Any) -> None:
    draw(tab, 2, "#compare")
    names = ["full attention", "todome 2", "ToDo 2", "ToMe 0.5"]
    assert [row.split("\n")[0] for row in tab.locator(".methods tbody th").all_inner_texts()] == names
    assert tab.locator(".cell .tag").all_inner_texts() == names
    assert not tab.locator(".frame:visible").count()
    tab.get_by_role("button", name="ToMe 0.5: compare with full attention").press("Enter")
    assert tab.locator(".frame:visible").count() == 1
    assert tab.locator(".frame:visible .tag.right").inner_text() == "ToMe 0.5"
    tab.get_by_role("button", name="All pictures").click()
    assert tab.locator(".cell:visible").count() == 4


def a_run_comes_back_with_its_view(tab: Any) -> None:
    """The view stays, the settings come back, and the picture is scrolled to."""
    tab.get_by_label("Difference x8").check()
    assert tab.locator("button.cell .difference").first.is_visible()
    tab.get_by_label("Prompt", exact=True).fill("something else")
    tab.mouse.wheel(0, 2000)
    tab.get_by_role("button", name="Restore run 1").press("Enter")
    tab.locator("[data-run='1'][aria-current]").wait_for()
    assert tab.get_by_label("Prompt", exact=True).input_value() == "a field of red tulips"
    assert tab.locator(".frame .difference").is_visible()
    assert not tab.locator(".frame .full").is_visible()
    tab.wait_for_function("document.querySelector('.frame').getBoundingClientRect().top >= 0")
    tab.get_by_label("Side by side").check()
    left, right = (tab.locator(f".frame .{kind}").bounding_box() for kind in ("full", "method"))
    assert left["x"] + left["width"] <= right["x"]


def test_settings_are_explained_and_a_run_can_be_stopped(visit):
    tab = visit()
    said = tab.locator("#setting")
    tab.locator("#pace label").filter(has_text="Fastest").click()
    said.get_by_text("a sixteenth of the picture").wait_for()
    tab.get_by_role("button", name="Method and factors").click()
    tab.get_by_label("Factor by the size").check()
    said.get_by_text("The automatic factor changes nothing at this size").wait_for()
    assert tab.get_by_label("Factor, level 1").is_disabled()
    assert tab.locator("#pace label.selected").count() == 0
    said.get_by_role("button", name="Use factor 2").click()
    said.get_by_text("a quarter of the picture, a different one at every step").wait_for()
    assert tab.get_by_label("Factor, level 1").is_enabled()
    assert tab.locator("#pace label.selected").inner_text().strip() == "Close"
    make_it_small(tab, steps=40, side=128)
    tab.get_by_label("Prompt", exact=True).fill("x" * 81)
    tab.locator("#draw").click()
    text = f"Prompt '{'x' * 40}...' does not work: it must be at most 80 characters long, and it has 81. Shorten it."
    assert tab.get_by_role("alert").inner_text() == text
    tab.get_by_label("Prompt", exact=True).fill("<b>${1 + 1}</b> {{ 7 * 7 }}")
    tab.locator("#draw:enabled").click()
    tab.locator(".sketch img").wait_for()
    assert re.fullmatch(r"About .* left\.", tab.locator(".progress .left").inner_text())
    above, picture = (tab.locator(selector).bounding_box() for selector in (".bars", ".frame"))
    assert above["y"] + above["height"] <= picture["y"]
    assert tab.get_by_role("alert").count() == 0
    tab.get_by_role("button", name="Stop").click()
    tab.get_by_text("Stopped. Nothing of this run is kept.").wait_for()
    assert tab.locator("[data-run]").count() == 0
    set_numbers(tab, Width=64, Height=64, Steps=1, Pictures=2)
    draw(tab)
    assert tab.locator("figcaption b").inner_text() == "<b>${1 + 1}</b> {{ 7 * 7 }}"
    assert tab.locator(".cell .tag").all_inner_texts() == ["seed 0", "seed 1"]


def test_a_picture_to_start_from(visit, pages, tmp_path):
    Image.new("RGB", (300, 200), "red").save(tmp_path / "red.png")
    (tmp_path / "none.png").write_text("no picture")
    tab = visit(viewport=LAPTOP)
    make_it_small(tab)
    tab.get_by_role("button", name="Start from a picture of yours").click()
    choose = tab.locator("[data-file='picture']")
    choose.set_input_files(tmp_path / "none.png")
    tab.locator("#uploaded").get_by_text("This picture cannot be used: it must be a picture as PNG").wait_for()
    choose.set_input_files(tmp_path / "red.png")
    told = tab.locator("#uploaded")
    told.get_by_text("Draw starts from your picture (128 x 85), cut to the size that is set; all of it").wait_for()
    draw(tab)
    assert "from a picture" in tab.locator("figcaption").inner_text()
    tab.locator(".upload canvas").scroll_into_view_if_needed()
    box = tab.locator(".upload canvas").bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 2 + 20, box["y"] + box["height"] / 2, steps=3)
    tab.mouse.up()
    told.get_by_text("the part you painted is drawn anew").wait_for()
    draw(tab, 2)
    made = max(pages.files.rglob("*tulips-0-dense.png"), key=lambda path: path.stat().st_mtime)
    with Image.open(made) as picture:
        assert picture.size == (64, 64)
        corner = np.asarray(picture.convert("RGB"))[60, 2]
    assert corner[0] > 180
    assert corner[1:].max() < 90  # what was not painted is still red
    reload(tab)
    wait_until_ready(tab)
    tab.get_by_role("button", name="Start from a picture of yours").click()
    told.get_by_role("button", name="Remove the picture").click()
    told.get_by_text("Draw starts").wait_for(state="detached")
    tab.get_by_role("button", name="Restore run 1").click()
    told.get_by_text("Draw starts from your picture").wait_for()
    delete_all(tab)
    assert not made.exists()
    assert not list(pages.files.rglob("start.png"))


def test_two_visitors_at_once_one_of_them_in_the_dark(visit):
    light, dark = visit(), visit(color_scheme="dark", viewport=PHONE, has_touch=True)
    assert not dark.evaluate(WIDER)
    for tab, prompt in ((light, "a red rose"), (dark, "white daisies")):
        make_it_small(tab)
        tab.get_by_label("Prompt", exact=True).fill(prompt)
    for tab in (light, dark):
        tab.get_by_label("Prompt", exact=True).press("Enter")
    for tab, prompt in ((light, "a red rose"), (dark, "white daisies")):
        tab.locator("[data-run='1']").wait_for()
        assert tab.locator("[data-run]").count() == 1
        assert tab.locator("figcaption b").inner_text() == prompt
    assert not dark.evaluate(WIDER)
    picture, verdict = (dark.locator(selector).bounding_box() for selector in (".stage", ".finding"))
    assert 0 <= verdict["y"] - picture["y"] - picture["height"] < 40  # directly under it
    paper = [tab.evaluate("getComputedStyle(document.body).backgroundColor") for tab in (light, dark)]
    assert paper == ["rgb(251, 250, 247)", "rgb(21, 22, 20)"]


def test_by_keyboard_alone(visit):
    tab = visit()
    tab.get_by_label("Prompt", exact=True).focus()
    reached = []
    for _ in range(9):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.closest('[id]').id || document.activeElement.innerText"))
        outline = tab.evaluate("""() => {
            const part = document.activeElement, around = part.closest("label") ?? part;
            return [part, around].some((one) => getComputedStyle(one).outlineStyle !== "none"
                || getComputedStyle(one).boxShadow !== "none");
        }""")
        assert outline, reached
    assert reached[0] == "draw"
    tab.keyboard.press("Shift+Tab")


def test_a_server_that_goes_is_missed(browser, pages):
    """The network is cut, which is all that a browser notices of it. The page asks ten times as often as usual."""
    context = browser.new_context()
    context.add_init_script(HURRIED)
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    tab.goto(pages.open)
    wait_until_ready(tab)
    make_it_small(tab, steps=40, side=128)
    tab.locator("#draw").click()
    tab.locator(".bars").wait_for()
    context.set_offline(True)
    gone = tab.get_by_role("alert").filter(has_text="The server no longer answers.")
    gone.wait_for()
    assert gone.get_by_role("button", name="Try to reconnect").is_visible()
    assert not tab.locator(".progress .left").is_visible()
    context.set_offline(False)
    tab.get_by_role("button", name="Load the page anew").click()
    wait_until_ready(tab)
    assert tab.locator(".gone-banner").count() == 0
    assert tab.locator(".bars").count() == 0
    context.close()
