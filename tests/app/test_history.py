"""Runs that are kept: written, compared, drawn again by their snippet, started from a picture; what is seen of them."""

import io
import json
import shlex
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import OFFER, SMALL
from PIL import Image
from typer.testing import CliRunner

from todome import Downsample, Merge
from todome.tools.app import results, runs
from todome.tools.app.drawing import Progress, Stop, Worker
from todome.tools.app.form import Form, Order
from todome.tools.app.reproduce import command, snippet
from todome.tools.app.results import FULL, RunProgress, View, finding, in_words, row_of, verdict_of, views
from todome.tools.app.runs import Pair, Run, Runs, SavedPicture
from todome.tools.app.start import save_start
from todome.tools.commands import app
from todome.tools.generate import Generated

ASKED = SMALL.settings(OFFER)
REDUCED = replace(ASKED, reduction=Downsample(2))


def drawn(form: Form, order: Order, pipe: Any, kept: Runs) -> Run:
    *_, end = (worker := Worker(pipe)).run(
        "a", lambda job: kept.save(form, order, worker.draw(order, kept.known(order), job), job.check_stop)
    )
    assert hasattr(end, "result"), end
    return end.result


def pixels(path: Path | str) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


THOROUGH = pytest.mark.thorough
FORMS = {
    "much": SMALL._replace(
        prompt="-o 'a' \"tulip\"\n$HOME \\ ünïcode",
        negative="--grey",
        method="ToDo",
        factor=1.5,
        factor2=2,
        start=0.25,
        stop=0.75,
        scheduler="dpm++-sde",
        guidance=2.5,
    ),
    "merged": SMALL._replace(method="ToMe", ratio=0.8, stride="3"),
    "dense": SMALL._replace(prompt="", method="dense"),
}


@pytest.mark.parametrize("name", ["much", *(pytest.param(name, marks=THOROUGH) for name in ("merged", "dense"))])
def test_command_and_snippet_make_the_picture_again(name, flowers, tmp_path, monkeypatch):
    run = drawn(FORMS[name], FORMS[name].order(OFFER), flowers, Runs(tmp_path))
    file = run.result.file
    monkeypatch.chdir(run.folder)
    words = shlex.split(command(file.name))
    result = CliRunner().invoke(app, words[1:], prog_name="todome")
    assert result.exit_code == 0, result.output
    assert (pixels(words[words.index("-o") + 1]) == pixels(file)).all()
    monkeypatch.chdir(tmp_path)
    exec(snippet(run), {})
    assert (pixels(file.name) == pixels(file)).all()


def made_of(asked: Any, value: int = 0) -> Generated:
    return Generated(Image.new("RGB", (64, 64), (value,) * 3), asked, "DPM++ 2M", 2.0, "reduced")


def test_the_oldest_runs_make_room_and_all_can_be_deleted(tmp_path):
    kept, order = Runs(tmp_path), Order((ASKED,), ())
    made = [kept.save(SMALL, order, [made_of(ASKED)], lambda: None) for _ in range(runs.MOST + 2)]
    assert kept.kept == made[:1:-1]
    assert {path.name for path in tmp_path.iterdir()} == {one.folder.name for one in kept.kept}
    assert np.asarray(kept.known(order)[0].picture).max() == 0
    assert not kept.known(order._replace(strength=0.5))
    assert not kept.known(Order((replace(ASKED, seed=6),), ()))
    kept.forget()
    assert not kept.known(order)
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_stopped_while_it_is_saved_leaves_nothing(tmp_path):
    def stop() -> None:
        raise Stop

    kept = Runs(tmp_path)
    with pytest.raises(Stop):
        kept.save(SMALL, Order((ASKED,), ()), [made_of(ASKED)], stop)
    assert not kept.kept
    assert not list(tmp_path.iterdir())


def picture(name: str, asked: Any, seconds: float) -> SavedPicture:
    return SavedPicture(Path(f"{name}.png"), asked, asked, "DPM++ 2M", seconds, name)


def made(psnr: float = 41.23, seconds: float = 2.0, asked: Any = REDUCED) -> Run:
    """A run with one pair of pictures."""
    full = picture("dense", replace(asked, reduction=None), 3.0)
    pair = Pair(full, picture("todome", asked, seconds), Path("difference.png"), {"psnr": psnr, "ssim": 0.99})
    return Run(SMALL, (full,), (pair,))


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (made(), "1.5x as fast, differences are hard to see."),
        (made(45.0), "1.5x as fast, no visible difference."),
        (made(30.0, 4.0), "Slower (0.75x as fast), differences are visible side by side."),
        (made(27.9, 2.95), "No faster, but another picture."),
        (made(100.0), "Nothing was reduced, so both pictures are the same."),
        (made()._replace(pairs=()), "Full attention took 3.0 seconds. Choose a method to compare with it."),
    ],
)
def test_the_verdict_is_in_plain_words(run, sentence):
    assert finding(run) == sentence
    assert sentence in verdict_of(run)


def test_an_automatic_factor_that_changes_nothing_says_what_would():
    assert results.CHANCE in finding(made(100.0, asked=replace(REDUCED, reduction=Downsample("auto"))))


def test_figures_are_there_where_they_were_measured():
    (pair,) = made().pairs
    assert row_of(pair, several=False) == ("todome 2", "hard to see, SSIM 0.9900", "2.0 s", "1.50x", "41.2 dB")
    same = row_of(made(100.0).pairs[0], several=True)
    assert same == ("seed 5", "nothing was reduced", "2.0 s", "", "same")  # a speed-up would be chance


def test_all_that_can_be_looked_at():
    first, tome = made(), made(asked=replace(ASKED, reduction=Merge(0.5)))
    compared = first._replace(pairs=(*first.pairs, tome.pairs[0]._replace(full=first.full[0])))
    full, difference = Path("dense.png"), Path("difference.png")
    assert views(compared) == [
        View(full, full, FULL),
        View(full, Path("todome.png"), "todome 2"),
        View(full, difference, "difference x8, todome 2"),
        View(full, Path("todome.png"), "ToMe 0.5"),
        View(full, difference, "difference x8, ToMe 0.5"),
    ]
    assert finding(compared) == "todome 2: 1.5x as fast, differences are hard to see."
    second = made(asked=replace(REDUCED, seed=6))
    seeds = first._replace(full=(*first.full, *second.full), pairs=(*first.pairs, *second.pairs))
    assert [view.title for view in views(seeds)][::3] == ["full attention, seed 5", "full attention, seed 6"]


def test_what_was_typed_is_text():
    typed = '"><img src=x onerror=alert(1)>'
    run = made(asked=replace(REDUCED, prompt=typed, negative=typed))
    for view in (verdict_of(run), results.notice(typed)):
        assert "<img src=x" not in view
        assert "&lt;img src=x" in view


def test_time_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = RunProgress()
    assert "left." not in progress.html(Progress(ASKED, 0, 2, 0, 10))
    assert "left." not in progress.html(Progress(ASKED, 0, 2, 1, 10, "data:,"))
    now[0] += 4
    shown = progress.html(Progress(ASKED, 0, 2, 3, 10))
    assert "About 34 seconds left." in shown  # two seconds for each of 17 steps
    assert 'src="data:,"' in shown  # the last preview stays
    assert [in_words(seconds) for seconds in (0.2, 12.4, 99, 400)] == [
        "a second",
        "12 seconds",
        "99 seconds",
        "7 minutes",
    ]


def uri(picture: Image.Image, kind: str = "PNG") -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return f"data:image/{kind.lower()};base64,{b64encode(buffer.getvalue()).decode()}"


def halves() -> Image.Image:
    """White to the left, black to the right."""
    mask = Image.new("L", (200, 100), 0)
    mask.paste(255, (0, 0, 100, 100))
    return mask


def bomb() -> str:
    """A PNG of some bytes that claims 30000 x 30000 pixels."""
    buffer = io.BytesIO()
    Image.new("1", (8, 8)).save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    content[16:24] = (30000).to_bytes(4, "big") * 2
    return f"data:image/png;base64,{b64encode(bytes(content)).decode()}"


@pytest.mark.parametrize(
    "sent",
    [
        "data:image/png;base64,no base64!",
        f"data:image/png;base64,{b64encode(b'no picture').decode()}",
        "https://example.com/picture.png",
        {"path": "/etc/passwd"},
        uri(Image.new("RGB", (8, 8)), "TIFF"),
        "data:image/svg+xml;base64," + b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode(),
        "data:image/png;base64," + "A" * 6 * 10**6,
        bomb(),
        uri(Image.new("RGB", (64, 64)))[:-40],
    ],
    ids=lambda sent: str(sent)[:30],
)
def test_what_is_no_picture_is_refused(tmp_path, sent):
    needed = "it must be a picture as PNG, JPEG or WebP of at most 4 MB and 50 megapixels. Choose another file."
    with pytest.raises(ValueError, match="cannot be used") as error:
        save_start(tmp_path, sent, None, 256)
    assert str(error.value) == f"This picture cannot be used: {needed}"
    with pytest.raises(ValueError, match=r"^This mask cannot be used"):
        save_start(tmp_path, uri(Image.new("RGB", (8, 8))), sent, 256)
    assert not list(tmp_path.iterdir())


def test_what_is_kept_of_a_picture(tmp_path):
    start = save_start(tmp_path, uri(Image.new("RGB", (400, 200), "red"), "JPEG"), uri(halves()), 256)
    assert (start.size, start.masked) == ((256, 128), True)
    found = start.load((64, 64))
    assert {name: (picture.mode, picture.size) for name, picture in found.items()} == {
        "image": ("RGB", (64, 64)),
        "mask_image": ("L", (64, 64)),
    }
    black = save_start(tmp_path, uri(Image.new("RGBA", (8, 8))), uri(Image.new("L", (8, 8))), 256)
    assert not black.masked  # nothing was painted
    assert list(black.load((8, 8))) == ["image"]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # some pipeline of diffusers
def test_a_run_that_starts_from_a_picture(flowers, tmp_path, monkeypatch):
    start = save_start(tmp_path, uri(Image.new("RGB", (64, 64), (200, 30, 30))), uri(halves()), 256)
    run = drawn(SMALL, SMALL._replace(strength=1).order(OFFER, start), flowers, Runs(tmp_path))
    made = pixels(run.full[0].file)
    assert made.shape == (64, 64, 3)
    assert np.abs(made[:, 40:] - (200, 30, 30)).mean() < 25 < np.abs(made[:, :24] - (200, 30, 30)).mean()
    with Image.open(run.full[0].file) as file:
        assert json.loads(file.info["todome_page"]) == {"started_from": "a picture", "strength": 1.0}
    for name, one in start.load((64, 64)).items():
        one.save(tmp_path / {"image": "start.png", "mask_image": "mask.png"}[name])
    monkeypatch.chdir(tmp_path)
    exec(snippet(run), {})
    assert (pixels(run.result.file.name) == pixels(run.result.file)).all()
