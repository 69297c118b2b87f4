"""Pictures to start from: only pictures, never too large, white where they may change."""

import io
import json
from base64 import b64encode

import numpy as np
import pytest
from asking import OFFER, SMALL
from PIL import Image
from test_runs import drawn, pixels

from todome.tools.app.reproduce import snippet
from todome.tools.app.runs import Runs
from todome.tools.app.start import save_start


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
        "data:,",
        "data:image/png;base64,no base64!",
        f"data:image/png;base64,{b64encode(b'no picture').decode()}",
        "https://example.com/picture.png",
        "/etc/passwd",
        {"path": "/etc/passwd"},
        7,
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
