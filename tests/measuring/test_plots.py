"""The plots: every method where its numbers are, and the same file for the same numbers."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from PIL import Image
from small_run import SIZES, row, small_run

from todome.tools.measuring.methods import method_named
from todome.tools.measuring.plots import pareto, series_of, worst_cases, write_plots
from todome.tools.measuring.runs import Evaluation


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Evaluation:
    return small_run(tmp_path_factory.mktemp("run"))


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
        ("todome", "todome, dithered"),
        ("todo:2,phase=dither", "todome, dithered"),
        ("todome:2,phase=random", "todome, random"),
        ("todo:2", "ToDo, fixed"),
        ("tome", "ToMe"),
        ("dense:20", "fewer dense steps"),
        ("deepcache:3", "packages of others"),
        ("todome:2+deepcache", "packages of others"),
    ],
)
def test_methods_belong_to_series(name, series):
    assert series_of(method_named(name)).label == series


def test_every_plot_is_an_svg_and_a_png_on_white(finished):
    run = replace(finished, rows=[one for one in finished.rows if one.size == SIZES[0]])
    names = [f"{plot}-48x32.{kind}" for plot in ("pareto", "worst-cases") for kind in ("svg", "png")]
    paths = write_plots(run)
    assert [path.name for path in paths] == names
    assert sorted((run.folder / "plots").iterdir()) == sorted(paths)
    for path in paths[1::2]:
        with Image.open(path) as picture:
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
