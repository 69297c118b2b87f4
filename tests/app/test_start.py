"""Pictures of visitors: only pictures, never too large, white where they may change; and LoRA files of the operator."""

import io
import json
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_page import SMALL

from todome import Downsample
from todome.tools.app.form import Extras, Order
from todome.tools.app.models import Models, lora_files
from todome.tools.app.reproduce import settings_to_repeat, snippet
from todome.tools.app.start import save_start
from todome.tools.app.store import PictureStore
from todome.tools.app.worker import DrawWorker, Failed, Finished, Visitor
from todome.tools.generate import Settings

PLAIN = Settings("a rose", size=(64, 64), steps=2, guidance=3.0, device="cpu", dtype="float32")


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
        "data:image/png;base64," + "A" * 10**6,
        bomb(),
        uri(Image.new("RGB", (64, 64)))[:-40],
    ],
    ids=lambda sent: str(sent)[:30],
)
def test_what_is_no_picture_is_refused(tmp_path, sent):
    needed = "it must be a picture as PNG, JPEG or WebP of at most 1 MB and 50 megapixels. Choose another file."
    with pytest.raises(ValueError, match="cannot be used") as error:
        save_start(tmp_path, sent, None, 10**5, 256)
    assert str(error.value) == f"This picture cannot be used: {needed}"
    with pytest.raises(ValueError, match=r"^This mask cannot be used"):
        save_start(tmp_path, uri(Image.new("RGB", (8, 8))), sent, 10**5, 256)
    assert not list(tmp_path.iterdir())


def test_what_is_kept_of_a_picture(tmp_path):
    start = save_start(tmp_path, uri(Image.new("RGB", (400, 200), "red"), "JPEG"), uri(halves()), 10**6, 256)
    assert (start.size, start.masked) == ((256, 128), True)
    found = start.load((64, 64))
    assert {name: (picture.mode, picture.size) for name, picture in found.items()} == {
        "image": ("RGB", (64, 64)),
        "mask_image": ("L", (64, 64)),
    }
    black = save_start(tmp_path, uri(Image.new("RGBA", (8, 8))), uri(Image.new("L", (8, 8))), 10**6, 256)
    assert not black.masked  # nothing was painted
    assert list(black.load((8, 8))) == ["image"]


def draw(flowers, tmp_path: Path, extras: Extras, loras: Path | None = None) -> Any:
    """The event that ends a run with full attention and todome, which is saved."""
    order = Order((PLAIN,), (Downsample(2),), extras)
    worker, store = DrawWorker(Models(PLAIN, flowers, loras), waiting=1, per_address=1), PictureStore(tmp_path, 10**7)
    try:
        *_, end = worker.draw(
            Visitor("a"), order, lambda made, check: store.save_run(SMALL, order, 1, [(one, 1) for one in made], check)
        )
    finally:
        worker.close(60)
        if getattr(flowers.unet, "peft_config", None):
            flowers.unload_lora_weights()
    return end


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


@pytest.fixture
def uploads(tmp_path: Path) -> Path:
    (tmp_path / "uploads").mkdir()
    return tmp_path / "uploads"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # some pipeline of diffusers
def test_a_run_that_starts_from_a_picture(flowers, tmp_path, uploads, monkeypatch):
    picture = Image.new("RGB", (64, 64), (200, 30, 30))
    start = save_start(uploads, uri(picture), uri(halves()), 10**6, 256)
    end = draw(flowers, tmp_path, Extras(start, strength=1.0))
    assert isinstance(end, Finished), end
    run = end.result
    made = pixels(run.full[0].file)
    assert made.shape == (64, 64, 3)
    assert np.abs(made[:, 40:] - (200, 30, 30)).mean() < 25 < np.abs(made[:, :24] - (200, 30, 30)).mean()
    with Image.open(run.full[0].file) as file:
        assert json.loads(file.info["todome_page"]) == {"started_from": "a picture", "strength": 1.0}
    kept = run.extras.start
    assert kept.folder.parent == run.folder
    for name, one in kept.load((64, 64)).items():
        one.save(tmp_path / {"image": "start.png", "mask_image": "mask.png"}[name])
    monkeypatch.chdir(tmp_path)
    exec(snippet(settings_to_repeat(run.result), "again.png", run.extras), {})
    assert (pixels(tmp_path / "again.png") == pixels(run.result.file)).all()


def test_a_lora_of_the_operator(flowers, tmp_path):
    folder = tmp_path / "loras"
    folder.mkdir()
    save_lora(flowers, folder / "rose.safetensors")
    (folder / "broken.safetensors").write_bytes(b"nothing")
    (folder / "notes.txt").touch()
    assert lora_files(folder) == ("broken.safetensors", "rose.safetensors")
    with pytest.raises(ValueError, match=r"is no folder\. --lora-folder needs one with \.safetensors files in it\.$"):
        lora_files(tmp_path / "none")
    plain = draw(flowers, tmp_path, Extras()).result.result.file
    changed = draw(flowers, tmp_path, Extras(lora="rose.safetensors", weight=1.0), folder).result
    assert (pixels(plain) != pixels(changed.result.file)).any()
    assert 'pipe.load_lora_weights("rose.safetensors", adapter_name="lora")' in snippet(
        settings_to_repeat(changed.result), "again.png", changed.extras
    )
    again = draw(flowers, tmp_path, Extras(), folder).result.result.file
    assert (pixels(plain) == pixels(again)).all()
    refusal = Failed("LoRA 'broken' does not fit this model. Choose another one, or none.")
    assert draw(flowers, tmp_path, Extras(lora="broken.safetensors"), folder) == refusal


def save_lora(pipe, file: Path) -> None:
    """A LoRA of random weights, as diffusers writes it."""
    import torch
    from diffusers.loaders import StableDiffusionLoraLoaderMixin

    source, weights = torch.Generator().manual_seed(0), {}
    for name, layer in pipe.unet.named_modules():
        if name.endswith("attn1.to_q"):
            rank, wide = 2, layer.in_features
            weights[f"{name}.lora_A.weight"] = torch.randn(rank, wide, generator=source)
            weights[f"{name}.lora_B.weight"] = torch.randn(layer.out_features, rank, generator=source)
    StableDiffusionLoraLoaderMixin.save_lora_weights(file.parent, unet_lora_layers=weights, weight_name=file.name)


def test_another_model_is_opened_in_place_of_the_first(flowers, monkeypatch):
    """What the operator added to the first is there again when that is opened again."""
    base = replace(PLAIN, loras=("style.safetensors",), vae="vae")
    models, opened = Models(base, flowers), []

    def open_pipeline(model, device, dtype, **parts):
        assert models.pipe is None  # there may be no room for two
        opened.append((model, device, dtype, *parts.values()))
        return flowers

    monkeypatch.setattr("todome.tools.app.models.open_pipeline", open_pipeline)
    models.pipeline(PLAIN, Extras())
    models.pipeline(replace(PLAIN, model="other"), Extras())
    models.pipeline(PLAIN, Extras())
    assert opened == [
        ("other", "cpu", "float32", (), None),
        ("todome-flowers", "cpu", "float32", ("style.safetensors",), "vae"),
    ]
