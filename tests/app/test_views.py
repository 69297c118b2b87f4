"""What is seen of a run: only what was measured, and what a visitor typed as text; and how runs make room."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_page import LIMITS, OFFER, SMALL

from todome import Downsample, Merge
from todome.tools.app import views
from todome.tools.app.estimates import TimeLeft, in_words
from todome.tools.app.form import PLAIN
from todome.tools.app.limits import Limits
from todome.tools.app.presets import title_of
from todome.tools.app.session import Pair, Run, SavedPicture, Session
from todome.tools.app.visitors import Visitors, new_cookie, visitor_in
from todome.tools.generate import Settings
from todome.tools.measuring.verdict import THRESHOLDS, verdict

ASKED = SMALL.settings(Limits(**LIMITS), Settings(device="cpu"), OFFER)
CLOSE = {"psnr": 41.23, "ssim": 0.99}


def picture(folder: Path, name: str, asked: Settings, seconds: float, run: int = 1) -> SavedPicture:
    return SavedPicture(folder / f"{name}.png", asked, asked, "DPM++ 2M", name, seconds, None, run)


def made(number: int = 1, root: Path = Path("runs"), asked: Settings = ASKED, seconds: float = 2.0, **close) -> Run:
    """A run with one pair of pictures."""
    full = picture(root / str(number), "dense", replace(asked, reduction=None), 3.0, number)
    reduced = picture(root / str(number), "todome", asked, seconds, number)
    pair = Pair(full, reduced, full.file.with_name("difference.png"), {**CLOSE, **close})
    return Run(number, SMALL, PLAIN, (full,), (pair,), "data:,")


def values(run: Run) -> dict[str, str]:
    return {figure.name: figure.value for figure in views.figures(run.pairs[0])}


def test_numbers_are_there_where_they_were_measured():
    run = made()
    assert values(run) == {"Time": "2.0 s", "PSNR": "41.2 dB", "SSIM": "0.9900"}
    (pair,) = run.pairs
    on_gpu = pair._replace(
        full=pair.full._replace(gigabytes=3.5),
        reduced=pair.reduced._replace(gigabytes=2.25),
        closeness={**CLOSE, "lpips": 0.0123},
    )
    assert values(run._replace(pairs=(on_gpu,))) == {**values(run), "LPIPS": "0.0123", "Memory": "2.25 GB"}
    again = pair._replace(reduced=pair.reduced._replace(run=2))
    assert views.figures(again)[0].about == "instead of 3.0 s with full attention (drawn in run 1)"


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (made(), "1.5x as fast, differences are hard to see."),
        (made(psnr=45.0), "1.5x as fast, no visible difference."),
        (made(psnr=30.0, seconds=4.0), "Slower (0.75x as fast), differences are visible side by side."),
        (made(psnr=27.9, seconds=2.95), "No faster, but another picture."),
        (made(psnr=100.0), "Nothing was reduced, so both pictures are the same."),
    ],
)
def test_the_verdict_is_in_plain_words(run, sentence):
    assert views.finding(run) == sentence
    assert sentence in views.verdict_of(run)
    assert ("x as fast" in views.verdict_of(run)) == ("x as fast" in sentence)  # no speed-up where nothing was reduced
    assert (THRESHOLDS in views.verdict_of(run)) == (run.pairs[0].psnr < 100)


def test_verdicts_name_what_they_are_about():
    assert verdict(0.5, 20, "ToMe") == "ToMe: slower (0.50x as fast), but another picture"
    assert verdict(12.34, 50) == "12.3x as fast, no visible difference"


def test_several_pictures_are_a_table():
    first, second = made(), made(psnr=100.0)
    seeds = first._replace(full=first.full * 2, pairs=(*first.pairs, *second.pairs))
    assert [row[1:] for row in views.table(seeds)] == [
        ("hard to see", "2.0 s", "1.50x", "41.2 dB"),
        ("nothing was reduced", "2.0 s", "", "same"),
    ]
    tome = made(asked=replace(ASKED, reduction=Merge(0.5)), psnr=20.0)
    methods = first._replace(pairs=(*first.pairs, *tome.pairs))
    assert [row.name for row in views.table(methods)] == ["full attention", "todome 2", "ToMe 0.5"]
    assert views.finding(methods) == "todome: 1.5x as fast, differences are hard to see."
    alone = first._replace(pairs=())
    assert "Full attention took 3.0 seconds. Choose a method to compare with it." in views.verdict_of(alone)


def test_bars_are_those_of_methods():
    pictures = [replace(ASKED, seed=seed, reduction=way) for seed in (0, 1) for way in (None, Downsample(2))]
    assert views.bars(pictures, {0, 2}, 1, 5, 10) == [
        views.Bar("full attention", "there already", 20, 20),
        views.Bar("todome 2", "5 of 20", 5, 20),
    ]


def test_time_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    left = TimeLeft([10.0, 4.0])
    assert left.seconds() is None
    left.step(0, 0, 5)
    assert left.seconds() == 14.0
    now[0] += 4
    left.step(0, 1, 5)  # it is slower than expected
    assert left.seconds() == 4 * 4 + 4.0
    now[0] += 1
    assert left.seconds() == 19.0
    assert [in_words(seconds) for seconds in (0.2, 12.4, 33, 99, 400)] == [
        "a second",
        "12 seconds",
        "35 seconds",
        "100 seconds",
        "7 minutes",
    ]


@pytest.mark.parametrize(
    ("reduction", "title"),
    [
        (None, "full attention"),
        (Downsample("auto"), "todome auto"),
        (Downsample((4, 1.5), phase="fixed", stop=0.8), "ToDo 4, 1.5, 0% to 80%"),
        (Merge(8 / 9, stride=(3, 3)), "ToMe 0.889"),
    ],
)
def test_titles(reduction, title):
    assert title_of(reduction) == title


def test_what_a_visitor_typed_is_text():
    typed = '"><img src=x onerror=alert(1)>'
    run = made(asked=replace(ASKED, prompt=typed, negative=typed))
    session = Session((run,), 1)
    for view in (views.stage(run), views.more(run), views.history(session, 1, 3), views.notice(typed)):
        assert "<img src=x" not in view
        assert "&lt;img src=x" in view


def test_the_oldest_run_makes_room_and_leaving_takes_all(tmp_path):
    session = Session()
    for number in range(1, 5):
        (tmp_path / str(number)).mkdir()
        session = session.add_run(made(number, tmp_path), 3)
    assert [kept.number for kept in session.runs] == [4, 3, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3", "4"]
    session.delete_files()
    assert not list(tmp_path.iterdir())


def test_pictures_with_full_attention_are_found_again_by_their_settings(tmp_path):
    run = made(root=tmp_path)
    session, alone = Session((run,), 1), replace(ASKED, reduction=None)
    assert session.known(alone, PLAIN) is None  # its file is gone
    run.folder.mkdir()
    run.full[0].file.touch()
    assert session.known(alone, PLAIN) is run.full[0]
    assert session.known(replace(alone, seed=6), PLAIN) is None
    assert session.known(alone, PLAIN._replace(lora="rose.safetensors")) is None


def test_visitors_are_known_by_their_cookie_for_a_day(tmp_path, monkeypatch):
    name = visitor_in(f"theme=dark; {new_cookie().decode().partition(';')[0]}")
    assert name is not None
    assert visitor_in("todome_visitor=../../etc") is None
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    visitors = Visitors(2)
    run = made(root=tmp_path)
    run.folder.mkdir()
    visitors.change(name, lambda session: session.add_run(run, 3))
    visitors.session("second")
    assert visitors.session(name).runs == (run,)
    visitors.session("third")  # the second is forgotten
    assert set(visitors.kept) == {name, "third"}
    now[0] += 25 * 3600
    assert visitors.session(name).runs == (run,)  # who comes back is not forgotten at the door
    visitors.session("fourth")
    visitors.forget(name)
    assert not run.folder.exists()
