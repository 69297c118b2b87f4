"""The page in a real browser: draw, compare, stop, restore, two visitors at once, a phone, the dark."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from todome.tools.generate import settings_of

UNNAMED = """() => [...document.querySelectorAll("input, textarea, button, summary, a, progress, img, svg[role]")]
  .filter((part) => part.checkVisibility() || part.type === "radio")
  .filter((part) => !part.labels?.length && !part.ariaLabel && !part.textContent.trim() && !part.hasAttribute("alt"))
  .map((part) => part.outerHTML)"""
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture
def visit(browser: Any, pages: Any) -> Iterator[Callable[..., Any]]:
    """Opens the page, as often as there are visitors. Whatever it does, it keeps quiet and asks nobody else."""
    contexts, said, asked = [], [], []

    def visit(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(pages.open)
        tab.locator("#draw:enabled").wait_for()
        return tab

    yield visit
    for context in contexts:
        context.close()
    assert not said
    assert not [url for url in asked if not url.startswith((pages.open, "data:"))]


def set_number(tab: Any, label: str, value: int) -> None:
    """Until it stays: on a busy machine the page may still be about to fill in what it begins with."""
    field, slider = (tab.get_by_label(f"{kind} for {label}") for kind in ("number input", "range slider"))
    for _ in range(100):
        if (field.input_value(), slider.input_value()) == (str(value), str(value)):
            return
        field.fill(str(value))
        field.press("Tab")
        tab.wait_for_timeout(300)
    pytest.fail(f"{label} does not stay at {value}")


def make_it_small(tab: Any, steps: int = 2, side: int = 64) -> None:
    tab.get_by_role("button", name="Size, steps, guidance").click()
    set_number(tab, "Width", side)
    set_number(tab, "Height", side)
    set_number(tab, "Steps", steps)


def draw(tab: Any, number: int = 1) -> None:
    tab.get_by_role("button", name="Draw").click()
    tab.locator(f"[data-run='{number}'][aria-current]").wait_for()
    tab.locator("#draw:enabled").wait_for()


def choose(tab: Any, method: str) -> None:
    tab.locator("#method label").filter(has_text=re.compile(f"^\\s*{method}\\s*$")).click()


def test_a_visit(visit, tmp_path):
    tab = visit()
    assert tab.get_by_role("heading", name="Say what to draw, then press Draw").is_visible()
    assert tab.evaluate(UNNAMED) == []
    make_it_small(tab)
    draw(tab)
    the_slider_moves(tab)
    the_views_change(tab)
    the_file_has_the_settings(tab, tmp_path)
    another_method_uses_the_same_dense_picture(tab)
    the_first_run_comes_back(tab)
    assert tab.evaluate(UNNAMED) == []
    tab.set_viewport_size({"width": 390, "height": 844})
    assert not tab.evaluate(WIDER)


def the_slider_moves(tab: Any) -> None:
    frame, slider = tab.locator(".frame"), tab.get_by_label("Dense to the left, todome 2 to the right")
    box = frame.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 4, box["y"] + 20, steps=3)
    tab.mouse.up()
    assert abs(float(slider.input_value()) - 25) <= 2
    assert frame.evaluate("frame => frame.style.getPropertyValue('--at')") == f"{slider.input_value()}%"
    slider.press("End")
    assert frame.evaluate("frame => frame.style.getPropertyValue('--at')") == "100%"


def the_views_change(tab: Any) -> None:
    assert not tab.locator(".frame .difference").is_visible()
    tab.get_by_label("Difference x8").check()
    assert tab.locator(".frame .difference").is_visible()
    assert not tab.locator(".frame .dense").is_visible()
    tab.get_by_label("Side by side").check()
    left, right = (tab.locator(f".frame .{kind}").bounding_box() for kind in ("dense", "method"))
    assert left["x"] + left["width"] <= right["x"]
    drawn = tab.locator(".frame img").evaluate_all("images => images.map((image) => image.naturalWidth)")
    assert drawn == [64, 64, 64]


def the_file_has_the_settings(tab: Any, tmp_path: Any) -> None:
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download todome 2").click()
    assert download.value.suggested_filename == "a-field-of-red-tulips-0-todome.png"
    download.value.save_as(tmp_path / "picture.png")
    settings = settings_of(tmp_path / "picture.png")
    assert (settings.prompt, settings.size, settings.steps) == ("a field of red tulips", (64, 64), 2)
    tab.get_by_text("As a command").click()
    assert "todome generate --size=64x64 --steps=2" in tab.locator("#recipes code").nth(1).inner_text()
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download a-field-of-red-tulips-0-todome.sh").click()
    download.value.save_as(tmp_path / "command.sh")
    assert (tmp_path / "command.sh").read_text() == tab.locator("#recipes code").nth(1).inner_text()


def another_method_uses_the_same_dense_picture(tab: Any) -> None:
    assert tab.get_by_label("Factor, level 1").is_visible()
    choose(tab, "ToMe")
    tab.get_by_label("number input for Ratio").wait_for()
    assert not tab.get_by_label("Factor, level 1").is_visible()
    tab.get_by_label("Prompt", exact=True).press("Shift+Enter")  # a line, and no run
    tab.get_by_label("Prompt", exact=True).press("Backspace")
    draw(tab, 2)
    assert "(from run 1)" in tab.locator(".tiles").inner_text()
    assert "ToMe 0.5 is " in tab.locator(".finding").inner_text()
    assert tab.locator(".chart li").count() == 2
    assert {"Speed-up", "PSNR", "SSIM"} <= set(tab.locator(".tiles dt").all_inner_texts())


def the_first_run_comes_back(tab: Any) -> None:
    tab.get_by_label("Prompt", exact=True).fill("something else")
    tab.get_by_role("button", name="Restore run 1").press("Enter")
    tab.locator("[data-run='1'][aria-current]").wait_for()
    assert tab.get_by_label("Prompt", exact=True).input_value() == "a field of red tulips"
    assert "todome 2 is " in tab.locator(".finding").inner_text()
    tab.get_by_label("Factor, level 1").wait_for()


def test_an_error_is_a_sentence_and_a_run_can_be_stopped(visit):
    tab = visit()
    make_it_small(tab, steps=40, side=128)
    tab.get_by_label("Prompt", exact=True).fill("x" * 81)
    tab.get_by_role("button", name="Draw").click()
    said = f"prompt='{'x' * 40}...' cannot be used. Allowed: at most 80 characters, and this has 81. Shorten it."
    assert tab.get_by_role("alert").inner_text() == said
    tab.get_by_label("Prompt", exact=True).fill("<b>${1 + 1}</b> {{ 7 * 7 }}")
    tab.locator("#draw:enabled").click()
    tab.locator(".sketch img").wait_for()
    assert tab.get_by_role("alert").count() == 0
    tab.get_by_role("button", name="Stop").click()
    tab.get_by_text("Stopped. Nothing of this run is kept.").wait_for()
    assert tab.locator("[data-run]").count() == 0
    set_number(tab, "Steps", 1)
    draw(tab)
    assert tab.locator("figcaption b").inner_text() == "<b>${1 + 1}</b> {{ 7 * 7 }}"


def test_two_visitors_at_once_one_of_them_in_the_dark(visit):
    light, dark = visit(), visit(color_scheme="dark", viewport={"width": 390, "height": 844})
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
