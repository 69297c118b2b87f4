"""What a run keeps on disk is there whole or not at all."""

import checkpoints
import pytest
import torch


def test_a_file_is_never_half_written(tmp_path):
    checkpoints.write_state(tmp_path, "part", {"x": torch.ones(3)})
    with pytest.raises(AttributeError, match="pickle"):
        checkpoints.write_state(tmp_path, "part", {"x": lambda: None})
    state = checkpoints.read_state(tmp_path, "part")
    assert state is not None
    assert state["x"].tolist() == [1, 1, 1]
    assert len(list(tmp_path.iterdir())) == 1
    checkpoints.write_weights(tmp_path, "part", {"x": torch.zeros(3)})
    assert checkpoints.read_weights(tmp_path, "part")["x"].tolist() == [0, 0, 0]
