"""What is seen of a run: only what was measured, and what a visitor typed as text; and how runs make room."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_page import LIMITS, SMALL

from todome import Downsample, Merge
from todome.tools.app import views
from todome.tools.app.limits import Limits
from todome.tools.app.session import Run, SavedPicture, Session
from todome.tools.generate import Settings

ASKED = SMALL.settings(Limits(**LIMITS), Settings(device="cpu"))


def run(number: int = 1, folder: Path = Path("runs"), **changes) -> Run:
    dense = SavedPicture(
        folder / str(number) / "dense.png", replace(ASKED, reduction=None), "DPM++ 2M", "dense", 3.0, None
    )
    reduced = dense._replace(file=dense.file.with_name("todome.png"), settings=ASKED, reduced="level 1", seconds=2.0)
    apart = dense.file.with_name("difference.png")
    made = Run(number, SMALL, ASKED, dense, number, reduced, apart, {"psnr": 41.23, "ssim": 0.99}, "data:,")
    return made._replace(**changes)


def values(run: Run) -> dict[str, str]:
    return {tile.name: tile.value for tile in views.tiles(run)}


def test_numbers_are_there_where_they_were_measured():
    made = run()
    assert values(made) == {"Speed-up": "1.50x", "PSNR": "41.2 dB", "SSIM": "0.9900"}
    assert made.reduced is not None
    on_gpu = run(
        dense=made.dense._replace(gigabytes=3.5),
        reduced=made.reduced._replace(gigabytes=2.25),
        closeness={**made.closeness, "lpips": 0.0123},
    )
    assert values(on_gpu) == {**values(made), "LPIPS": "0.0123", "Peak memory": "2.25 GB"}
    assert values(run(reduced=None, closeness={})) == {"Time": "3.00 s"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "todome 2 is 1.50 times as fast as dense, and 41.2\u00a0dB close to it."),
        (
            {"reduced": run().dense._replace(seconds=4.0)},
            "todome 2 is slower than dense, 0.75x, and 41.2\u00a0dB close to it.",
        ),
        ({"closeness": {"psnr": 100.0}}, views.SAME_PICTURE),
        ({"reduced": None}, "The dense picture took 3.00 seconds. Choose a method to compare with it."),
    ],
)
def test_what_is_found_is_said(changes, sentence):
    assert views.finding(run(**changes)) == sentence


@pytest.mark.parametrize(
    ("reduction", "title"),
    [
        (None, "dense"),
        (Downsample("auto"), "todome auto"),
        (Downsample((4, 1.5), phase="fixed", stop=0.8), "ToDo 4, 1.5, 0% to 80%"),
        (Merge(8 / 9, stride=(3, 3)), "ToMe 0.889"),
    ],
)
def test_titles(reduction, title):
    assert views.title_of(reduction) == title


def test_what_a_visitor_typed_is_text():
    typed = '"><img src=x onerror=alert(1)>'
    asked = replace(ASKED, prompt=typed, negative=typed)
    made = run(asked=asked, reduced=run().result._replace(settings=asked))
    session = Session((made,), 1)
    for view in (views.stage(made), views.recipes(made), views.history(session, 1), views.notice(typed)):
        assert "<img src=x" not in view
        assert "&lt;img src=x" in view


def test_the_oldest_run_makes_room_and_leaving_takes_all(tmp_path):
    session = Session()
    for number in range(1, 5):
        (tmp_path / str(number)).mkdir()
        session = session.add_run(run(number, tmp_path), 3)
    assert [kept.number for kept in session.runs] == [4, 3, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3", "4"]
    session.delete_files()
    assert not list(tmp_path.iterdir())


def test_dense_pictures_are_found_again_by_their_settings():
    session = Session((run(),), 1)
    assert session.dense_of(replace(ASKED, reduction=Merge(0.5))) is session.runs[0]
    assert session.dense_of(replace(ASKED, seed=6)) is None
