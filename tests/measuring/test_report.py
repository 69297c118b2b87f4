"""The report is one file that holds what was measured, the worst first, with its plots; and it works in a browser."""

import re
import shlex
import shutil
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from todome.tools.commands import app
from todome.tools.measuring.methods import method_named
from todome.tools.measuring.plots import pareto, series_of, worst_cases, write_plots
from todome.tools.measuring.report import command_for, write_report
from todome.tools.measuring.report_pictures import EXACT, MOST, Embedding, embedding_for
from todome.tools.measuring.runs import Closeness, Evaluation, EvaluationPlan, EvaluationRow, save_results
from todome.tools.pictures import difference
from todome.tools.pipelines import Size

pytestmark = pytest.mark.xdist_group("report")  # what they share is made once

SCRIPT = "a <script>alert('rose')</script> & more"
NOISE = {"dense": 0, "todome:2": 2, "dense:20": 4, "todo:2": 8, "tome:0.5": 24}  # the closest to dense first
SPEED = {"dense": 1.0, "todome:2": 1.24, "dense:20": 1.26, "todo:2": 1.23, "tome:0.5": 1.1}
SIZES = ((48, 32), (64, 64))
PICTURES = 5


def small_run(folder: Path) -> Evaluation:
    """Finished: every method at two sizes. Picture 3 is the worst of each method, then 1, 4, 0, 2."""
    plan = EvaluationPlan(
        [SCRIPT, "tulips"], tuple(NOISE), model="some/flowers", sizes=SIZES, pictures=PICTURES, seed=70
    )
    rows = [row(size, method) for size in SIZES for method in NOISE]
    run = Evaluation(plan, {"gpu": "A GPU", "versions": {"todome": "0.1.0", "torch": "2"}}, rows, folder)
    for one in rows:
        for i in range(PICTURES):
            path = run.picture(one.size, one.method, i)
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn(one.size, NOISE[one.method], i).save(path)
    save_results(run)
    return run


def row(size: Size, method: str) -> EvaluationRow:
    psnr = [50 - NOISE[method] - loss for loss in (2, 6, 1, 15.5, 4)]
    lpips = [NOISE[method] * (i + 1) / 1000 for i in range(PICTURES)]
    detail = [1 + NOISE[method] / 100] * PICTURES
    closeness = Closeness() if method == "dense" else Closeness(psnr=psnr, lpips=lpips, detail=detail)
    steps = 20 if method == "dense:20" else 25
    return EvaluationRow(size, method, PICTURES, steps, 2 / SPEED[method], SPEED[method], closeness=closeness)


def drawn(size: Size, noise: int, i: int) -> Image.Image:
    width, height = size
    across, down = np.meshgrid(np.linspace(40, 200, width), np.linspace(40, 200, height))
    picture = np.stack([across, down, np.full_like(across, 40 * i)], axis=-1)
    picture += noise * np.random.default_rng(i).standard_normal(picture.shape)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))


METHODS = ["todome 2", "dense, 20 steps", "todo 2", "tome 0.5"]  # the closest first


class Page(HTMLParser):
    """What the tests look at: links, cells, pictures by their class, captions and all text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.pictures: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.captions: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("src", "href", "srcset", "data", "action") if name in given]
        if tag == "img":
            self.pictures.setdefault(given["class"], []).append(given["src"])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        elif tag == "figcaption":
            self.captions.append("")
        if tag not in ("img", "input", "meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open or "script" in self.open:
            return
        self.words += data.split()
        if "tr" in self.open:
            self.rows[-1][-1] += data.strip() if self.rows[-1] else ""
        if "figcaption" in self.open:
            self.captions[-1] += data

    @property
    def text(self) -> str:
        return " ".join(self.words)


def decoded(uri: str) -> Image.Image:
    return Image.open(BytesIO(b64decode(uri.partition("base64,")[2])))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return small_run(tmp_path_factory.mktemp("evaluations") / "run")


@pytest.fixture(scope="module")
def page(finished: Evaluation) -> Page:
    path = write_report(finished.folder)
    assert path == finished.folder / "report.html"
    return Page(path)


@pytest.fixture
def reported(finished: Evaluation, tmp_path: Path) -> Callable[..., Page]:
    """The page of a run with other rows, and with the pictures of the finished one."""

    def write(rows: list[EvaluationRow], **options: Any) -> Page:
        run = replace(finished, rows=rows, folder=tmp_path)
        shutil.copytree(finished.folder / "pictures", tmp_path / "pictures")
        save_results(run)
        return Page(write_report(tmp_path, **options))

    return write


def test_it_needs_nothing_else_and_what_users_wrote_is_text(page, finished):
    assert page.links
    assert all(link.startswith(("data:", "#")) for link in page.links)
    assert not page.open
    source = (finished.folder / "report.html").read_text()
    assert "alert" not in " ".join(re.findall(r"<script.*?</script>", source, re.S))
    assert sum(SCRIPT in caption for caption in page.captions) == len(SIZES) * len(METHODS) * 3
    assert page.text.count(SCRIPT) == len(SIZES) * len(METHODS) * 3 + 1


def test_the_finding_and_the_table_are_what_was_measured(page, finished):
    said = "todome 2: 1.2x as fast, differences are hard to see."
    assert page.text.count(said) == len(SIZES)
    assert page.text.count("42.3 dB close on average, and 32 dB in its worst picture.") == len(SIZES)
    assert page.text.count("with 20 of 25 steps is 1.26x as fast and 40.3 dB close") == len(SIZES)
    heads = ["method", "speed-up", "s / picture", "PSNR, dB", "worst 5 %", "LPIPS", "detail"]  # no others were measured
    assert (
        page.rows[:6]
        == page.rows[6:]
        == [
            heads,
            ["dense", "1.00x", "2.000", "-", "-", "-", "-"],
            ["todome 2", "1.24x", "1.613", "42.3", "32.5", "0.0060", "1.02"],
            ["dense, 20 steps", "1.26x", "1.587", "40.3", "30.5", "0.0120", "1.04"],
            ["todo 2", "1.23x", "1.626", "36.3", "26.5", "0.0240", "1.08"],
            ["tome 0.5", "1.10x", "1.818", "20.3", "10.5", "0.0720", "1.24"],
        ]
    )
    best = re.findall(r"<td><strong>(.*?)</strong>", (finished.folder / "report.html").read_text())
    assert best == ["42.3", "32.5", "0.0060", "1.02", "1.26x", "1.587"] * len(SIZES)


def test_the_worst_come_first(page):
    cases = [caption for caption in page.captions if "seed" in caption]
    assert len(cases) == len(SIZES) * len(METHODS) * PICTURES
    assert cases[0] == "tulips32.5 dB · LPIPS 0.0080 · seed 73"
    assert [int(caption.rpartition(" ")[2]) - 70 for caption in cases] == [3, 1, 4, 0, 2] * len(SIZES) * len(METHODS)


def test_pictures_and_differences_are_those_of_the_files(page, finished):
    with (
        Image.open(finished.picture(SIZES[0], "dense", 3)) as dense,
        Image.open(finished.picture(SIZES[0], "todome:2", 3)) as drawn,
    ):
        expected = {"dense": dense, "method": drawn, "difference": difference(drawn, dense, 8)}
        for kind, picture in expected.items():
            assert np.array_equal(np.asarray(decoded(page.pictures[kind][0])), np.asarray(picture))


def test_settings_machine_and_the_command_to_measure_it_again(page, finished):
    for fact in ("model some/flowers", "sizes 48x32; 64x64", "seed 70", "gpu A GPU", "versions todome 0.1.0; torch 2"):
        assert fact in page.text
    command = str(command_for(replace(finished, rows=[replace(finished.rows[0], fid=1.0)])))
    assert command.removesuffix(" --fid") in page.text
    words = shlex.split(command)
    assert words[:5] == ["todome", "eval", "some/flowers", "--prompts", "prompts.txt"]
    assert words[words.index("--methods") + 1 : words.index("--size")] == list(NOISE)
    assert words[words.index("--size") + 1 : words.index("--pictures")] == ["48x32", "64x64"]
    assert command_for(replace(finished, plan=replace(finished.plan, only={"todo:2": ["48x32"]}))) is None


def test_large_pictures_are_scaled_down(finished):
    one = next(row for row in finished.rows if not row.is_dense)
    many = replace(one, size=(2048, 1024), closeness=Closeness(psnr=[30.0] * 200))
    few = embedding_for(replace(finished, rows=[many]), cases=2)
    assert few.size((2048, 1024)) == (768, 384)
    assert few.lossless == (EXACT >= 6 * 768 * 384)
    most = embedding_for(replace(finished, rows=[many] * 5), cases=200)
    width, height = most.size((2048, 1024))
    assert 0.98 * MOST < 5 * 200 * 3 * width * height < 1.02 * MOST
    assert decoded(Embedding(0.5, lossless=False).uri(Image.new("RGB", (1024, 512)))).size == (384, 192)


def test_an_unfinished_run_says_what_is_missing(finished, reported):
    dense, close, drawn, *_ = finished.rows
    page = reported([dense, close, replace(drawn, closeness=Closeness())], cases=2)
    assert "Not drawn yet: todo 2; tome 0.5. Not compared with full attention yet: dense, 20 steps." in page.text
    assert "There is nothing to compare with full attention (dense) at this size yet." in page.text  # at the second one
    assert [row[0] for row in page.rows] == ["method", "dense", "todome 2", "dense, 20 steps"]
    assert page.rows[-1] == ["dense, 20 steps", "1.26x", "1.587", "-", "-", "-", "-"]
    assert len(page.pictures["method"]) == 2
    assert "2 of 5 pictures of todome 2, the worst first. All of them are in pictures/48x32/todome_2" in page.text


@pytest.mark.parametrize("count", [0, 1])
def test_a_run_with_nothing_to_compare(finished, reported, count):
    page = reported(finished.rows[:count])
    missing = "todome 2; dense, 20 steps; todo 2; tome 0.5."
    assert f"Not drawn yet: {'dense; ' * (1 - count)}{missing}" in page.text
    assert not page.pictures


def linked(path: Path) -> None:
    private = path.rename(path.parents[4] / "private.png")
    path.symlink_to(private)


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"half a file"), linked])
def test_a_picture_that_cannot_be_read_or_is_a_link_to_somewhere_else(tmp_path, spoil):
    run = small_run(tmp_path / "run")
    spoil(run.picture(SIZES[0], "todo:2", 1))
    with pytest.raises((FileNotFoundError, ValueError), match=r"^picture=.* Allowed: the (PNG|name of a) file "):
        write_report(run.folder)
    assert not (run.folder / "report.html").exists()


def command(*words: Any) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)], prog_name="todome")


def test_the_command_says_where_everything_is_and_keeps_files_of_others(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished.folder, "run")
    said = command("run", "--cases", 1).stdout.splitlines()
    assert said[0].startswith("Report: run/report.html, ")
    assert len(said) == 1 + 2 * 2 * len(SIZES)
    assert all(Path(line.removeprefix("Plot: ")).is_file() for line in said[1:])
    Path("mine.html").write_text("a user's own")
    assert "out='mine.html' exists already." in command("run", "--out", "mine.html").stderr
    assert Path("mine.html").read_text() == "a user's own"
    assert command("run", "--out", "mine.html", "--cases", 1, "--force").exit_code == 0
    assert Path("mine.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("RUN -o a.pdf", "out='a.pdf' does not end in .html"),
        ("none", "run='none' cannot be used."),
        ("RUN --cases 0", "Invalid value for '--cases'"),
    ],
)
def test_what_the_command_refuses(finished, words, said):
    assert said in command(*words.replace("RUN", str(finished.folder)).split()).stderr


def test_a_failure_leaves_the_old_file(finished, tmp_path, monkeypatch):
    path = tmp_path / "mine.html"
    path.write_text("a user's own")

    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match=r"^No space left on device$"):
        write_report(finished.folder, path, cases=1, force=True)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.html"]
    assert path.read_text() == "a user's own"
    with pytest.raises(ValueError, match=r"^cases=0 cannot be used\."):
        write_report(finished.folder, cases=0)


@pytest.mark.thorough
@pytest.mark.usefixtures("page")
def test_in_a_browser(browser, finished):
    said: list[str] = []
    tab = browser.new_page()
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto((finished.folder / "report.html").as_uri())
    the_slider_moves_by_keyboard(tab)
    one_method_and_one_size_are_seen(tab)
    every_view_shows_its_pictures(tab)
    nothing_is_wider_than_a_phone(tab)
    assert not said


@pytest.mark.thorough
@pytest.mark.usefixtures("page")
def test_in_a_browser_without_scripts(browser, finished):
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto((finished.folder / "report.html").as_uri())
    assert tab.locator("noscript p:visible").count() == 1
    one_method_and_one_size_are_seen(tab)
    every_view_shows_its_pictures(tab)


def the_slider_moves_by_keyboard(tab: Any) -> None:
    frame = tab.locator(".frame:visible").first
    slider = frame.get_by_role("slider", name="Full attention to the left, todome 2 to the right: tulips")
    clip = "element => getComputedStyle(element).clipPath"
    assert frame.locator(".method").evaluate(clip) == "inset(0px 0px 0px 50%)"
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    assert frame.locator(".method").evaluate(clip) == "inset(0px 0px 0px 48%)"
    box = slider.bounding_box()
    tab.mouse.click(box["x"] + 0.2 * box["width"], box["y"] + 9)
    assert frame.locator(".method").evaluate(clip) == "inset(0px 0px 0px 20%)"


def one_method_and_one_size_are_seen(tab: Any) -> None:
    seen = tab.locator(".method:visible")
    first = seen.first.get_attribute("src")
    assert seen.count() == PICTURES
    tab.get_by_label("tome 0.5", exact=True).first.check()
    assert seen.count() == PICTURES
    assert seen.first.get_attribute("src") != first
    assert "tome 0.5" in seen.first.get_attribute("alt")
    tab.get_by_label("64 x 64", exact=True).check()
    assert seen.count() == PICTURES
    assert "todome 2" in seen.first.get_attribute("alt")
    assert tab.locator("table:visible").count() == 1


def every_view_shows_its_pictures(tab: Any) -> None:
    tab.get_by_label("Difference x8").locator("visible=true").check()
    kinds = {kind: tab.locator(f".{kind}:visible") for kind in ("dense", "method", "difference")}
    assert [kinds[kind].count() for kind in kinds] == [0, 0, PICTURES]
    tab.get_by_label("Side by side").locator("visible=true").check()
    assert [kinds[kind].count() for kind in kinds] == [PICTURES, PICTURES, 0]
    left, right = (kinds[kind].first.bounding_box() for kind in ("dense", "method"))
    assert left["x"] + left["width"] < right["x"]
    assert left["y"] == right["y"]


def nothing_is_wider_than_a_phone(tab: Any) -> None:
    tab.set_viewport_size({"width": 360, "height": 700})
    for view in ("Slider", "Side by side"):
        tab.get_by_label(view).locator("visible=true").check()
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def lines_of(figure: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in figure.axes[0].get_lines() if not line.get_label().startswith("_")}


def test_every_method_is_where_its_numbers_are(finished):
    figure = pareto(finished, SIZES[0])
    points = {tuple(point) for line in lines_of(figure).values() for point in line.get_xydata()}
    compared = [one for one in finished.rows if one.size == SIZES[0] and not one.is_dense]
    assert points == {(one.speedup, fmean(one.closeness.psnr)) for one in compared}
    assert {text.get_text() for text in figure.axes[0].texts} == {"todome 2", "20 steps", "todo 2", "tome 0.5"}
    assert set(lines_of(figure)) == {"todome, dithered", "ToDo, fixed", "ToMe", "fewer dense steps"}


def test_only_the_control_is_joined(finished):
    more = replace(row(SIZES[0], "dense:20"), method="dense:10", speedup=2.4)
    lines = lines_of(pareto(replace(finished, rows=[*finished.rows, more]), SIZES[0]))
    assert {label for label, line in lines.items() if line.get_linestyle() != "None"} == {"fewer dense steps"}
    assert list(lines["fewer dense steps"].get_xdata()) == [1.26, 2.4]


def test_labels_do_not_cover_each_other(finished):
    near = [replace(row(SIZES[0], "todome:2"), method=f"todome:{n}", speedup=1.24 + n / 1000) for n in (3, 4)]
    figure = pareto(replace(finished, rows=[*finished.rows, *near]), SIZES[0])
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 6
    assert all(box.count_overlaps(boxes) == 1 for box in boxes)


def test_the_worst_pictures_are_at_the_left(finished):
    line = lines_of(worst_cases(finished, SIZES[1]))["todo 2"]
    assert list(line.get_ydata()) == [26.5, 36, 38, 40, 41]
    assert list(line.get_xdata()) == [10, 30, 50, 70, 90]


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("todo:2,phase=dither", "todome, dithered"),
        ("todome:2,phase=random", "todome, random"),
        ("deepcache:3", "packages of others"),
        ("todome:2+deepcache", "packages of others"),
    ],
)
def test_methods_belong_to_series(name, series):
    assert series_of(method_named(name)).label == series


def test_every_plot_is_an_svg_and_a_png_on_white(finished, tmp_path):
    run = replace(finished, rows=[one for one in finished.rows if one.size == SIZES[0]], folder=tmp_path)
    names = [f"{plot}-48x32.{kind}" for plot in ("pareto", "worst-cases") for kind in ("svg", "png")]
    paths = write_plots(run)
    assert [path.name for path in paths] == names
    assert sorted((run.folder / "plots").iterdir()) == sorted(paths)
    for path in paths[1::2]:
        with Image.open(path) as picture:
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
