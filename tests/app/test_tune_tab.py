"""The Tune tab in a real browser: measure, stop, look at the plan, take it to the other tab, keep its file."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fresh import DRAWING, python_after
from small_page import LIMITS, OFFER, SMALL
from tabs import Heard, close, opened, reload
from test_browser import DESK, PHONE, UNNAMED, WIDER, make_it_small

from todome import Plan
from todome.plan import PlannedLayer
from todome.tools.app import tuning_views
from todome.tools.app.form import Extras
from todome.tools.app.limits import Limits
from todome.tools.app.tuning import PlanPoint, Tuned, TuneForm, TuneState
from todome.tools.generate import Settings, settings_of
from todome.tools.tuning.goal import Goal

BASE = Settings(device="cpu")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tuning")
    surroundings = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [python_after(DRAWING), str(Path(__file__).with_name("tuning_page.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=surroundings,
        )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip() or pytest.fail((folder / "log").read_text())
    finally:
        server.communicate(timeout=30)
        assert server.returncode == 0
        assert not list(folder.glob("todome-app-*"))


@pytest.fixture
def tab(browser: Any, url: str) -> Iterator[Any]:
    context, heard = browser.new_context(viewport=DESK), Heard([], [])
    tab = opened(context, url, heard, seconds=120)
    tab.locator("#draw:enabled").wait_for()
    yield tab
    close(context)
    assert not heard.said


def open_tune(tab: Any) -> None:
    tab.get_by_role("tab", name="Tune").click()
    tab.locator("#tune:enabled").wait_for()


def set_closeness(tab: Any, value: int) -> None:
    field = tab.get_by_label("number input for dB to full attention")
    field.fill(str(value))
    field.press("Tab")
    tab.wait_for_timeout(300)


def test_a_tuning(tab, tmp_path):
    make_it_small(tab)
    open_tune(tab)
    tab.get_by_text("Pictures of 64 x 64 in 2 steps, as on the Draw tab.").wait_for()
    it_can_be_stopped(tab)
    tab.get_by_text("Be fast").click()
    tab.get_by_label("number input for Times as fast").wait_for()
    tab.locator("#tune").click()
    tab.locator("#tune-result .finding").wait_for()
    assert "dB to dense" in tab.locator("#tune-result .finding").inner_text()
    assert tab.locator(".unet li").count() == 16
    assert tab.locator(".unet li:not(.dense)").count() > 0
    assert tab.locator(".layers .meter.change").count() > 0
    assert tab.locator(".plot circle.chosen").count() == 1
    assert tab.evaluate(UNNAMED) == []
    plan = the_file_is_a_plan(tab, tmp_path)
    for size in (DESK, PHONE):
        tab.set_viewport_size(size)
        assert not tab.evaluate(WIDER)
    tab.set_viewport_size(DESK)
    it_is_still_there_after_a_reload(tab)
    pictures_are_drawn_with_it(tab, tmp_path, plan)


def it_can_be_stopped(tab: Any) -> None:
    set_closeness(tab, 60)
    tab.locator("#tune").click()
    tab.locator(".layers .meter").first.wait_for()
    tab.locator("#tune-stop").click()
    tab.get_by_text("Stopped. What was measured until then is kept").wait_for()
    tab.locator("#tune:enabled").wait_for()
    assert tab.locator("#tune-result .finding").count() == 0


def the_file_is_a_plan(tab: Any, tmp_path: Path) -> Plan:
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download plan.json").click()
    download.value.save_as(tmp_path / "plan.json")
    plan = Plan.load(tmp_path / "plan.json")
    assert plan.measured["size"] == [64, 64]
    return plan


def it_is_still_there_after_a_reload(tab: Any) -> None:
    reload(tab)
    tab.locator("#draw:enabled").wait_for()
    open_tune(tab)
    tab.locator("#tune-result .finding").wait_for()


def pictures_are_drawn_with_it(tab: Any, tmp_path: Path, plan: Plan) -> None:
    tab.locator("#apply").click()
    tab.get_by_text("Your plan: a factor for each layer").wait_for()
    tab.locator("#draw").click()
    tab.locator("[data-run='1'][aria-current]").wait_for()
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download plan", exact=True).click()
    download.value.save_as(tmp_path / "picture.png")
    made = settings_of(tmp_path / "picture.png")
    assert made.reduction == plan
    assert (made.size, made.steps) == ((64, 64), 2)


def test_bad_values_are_said():
    def order(**changes: Any) -> Any:
        return TuneForm(**changes).order(SMALL, Limits(**LIMITS), BASE, OFFER)

    for changes, said in {
        "aim": ("far", "Aim 'far' does not work: it must be one of close, fast"),
        "keep": (400, "Closeness 400 does not work: it must be a number from 25 to 60"),
        "faster": (None, "Speed None does not work"),
        "minutes": (10**9, "Minutes 1000000000 does not work: it must be a number from 0.2 to 10"),
        "prompts": ("one", "Prompts are missing: write at least two"),
    }.items():
        with pytest.raises(ValueError, match=said[1]):
            order(**{changes: said[0]})
    assert order().goal == Goal(40)
    assert order(aim="fast").goal == Goal(faster=1.2)
    assert order(prompts=" a \n\n b ").prompts == ("a", "b")


def test_the_lora_that_is_chosen_for_drawing_is_tuned_with():
    form, offer = SMALL._replace(lora="rose.safetensors", weight=0.5), OFFER._replace(loras=("rose.safetensors",))
    order = TuneForm().order(form, Limits(**LIMITS), BASE, offer)
    assert order.extras == Extras(lora="rose.safetensors", weight=0.5)


def test_a_form_with_a_plan_needs_one():
    plan = Plan({"up.1.0": PlannedLayer(2, 2, 64, (8, 8))})
    form = SMALL._replace(method="plan")
    assert form.order(Limits(**LIMITS), BASE, OFFER, plan=plan).reductions == (plan,)
    with pytest.raises(ValueError, match="You have no plan yet"):
        form.order(Limits(**LIMITS), BASE, OFFER)


def test_the_plot_has_every_point_inside():
    plan = Plan({"up.1.0": PlannedLayer(2, 4, 64, (8, 8))}, measured={"psnr": 40.5, "speedup": 1.2})
    drawn = (PlanPoint(1.3, 30.0), PlanPoint(1.2, 40.5))
    order = TuneForm().order(SMALL, Limits(**LIMITS), BASE, OFFER)
    plot = tuning_views.plot(Tuned(order, plan, TuneState(drawn=drawn, expected=(PlanPoint(1.01, 58.0),))))
    assert [mark.kind for mark in plot.marks] == ["drawn", "chosen"]
    for mark in plot.marks:
        assert tuning_views.LEFT <= mark.x <= tuning_views.WIDTH - tuning_views.RIGHT
        assert tuning_views.TOP <= mark.y <= tuning_views.HEIGHT - tuning_views.BOTTOM
    (row,) = tuning_views.unet_rows(plan)
    assert (row.up[0].factor, row.up[0].about) == ("2→4", "up.1.0: factor 2 in the first half of the steps, then 4")
