"""What a run keeps on disk is there whole or not at all."""

from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch


def half_written(*args: Any) -> None:
    """Fails as a full disk does, with a part of the file written. The path is the second argument of both writers."""
    Path(args[1]).write_bytes(b"half")
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("writer", "write", "read"),
    [
        ("checkpoints.save_file", checkpoints.write_weights, checkpoints.read_weights),
        ("torch.save", checkpoints.write_state, checkpoints.read_state),
    ],
)
def test_a_file_is_never_half_written(tmp_path, monkeypatch, writer, write, read):
    write(tmp_path, "part", {"x": torch.ones(3)})
    with monkeypatch.context() as patch:
        patch.setattr(writer, half_written)
        with pytest.raises(OSError, match="disk full"):
            write(tmp_path, "part", {"x": torch.zeros(3)})
    assert read(tmp_path, "part")["x"].tolist() == [1, 1, 1]
    write(tmp_path, "part", {"x": torch.zeros(3)})
    assert read(tmp_path, "part")["x"].tolist() == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 1
