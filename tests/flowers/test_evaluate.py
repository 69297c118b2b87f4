"""How the pictures of the model card are laid out."""

import evaluate
import torch
from PIL import Image


def test_a_contact_sheet(flowers, monkeypatch, tmp_path):
    monkeypatch.setattr(evaluate, "STEPS", 1)
    monkeypatch.setattr(evaluate, "BATCH", 2)
    made = evaluate.pictures(flowers, ["a rose"] * 3, range(3), 64, 96)
    assert (made.shape, made.dtype) == ((3, 3, 64, 96), torch.uint8)
    evaluate.contact_sheet([made, made[:1]], tmp_path / "sheet.jpg", "weights: of the test")
    with Image.open(tmp_path / "sheet.jpg") as sheet:
        assert sheet.size == (3 * 100, 2 * 68)
        assert sheet.info["comment"] == b"weights: of the test"
