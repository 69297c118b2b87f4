"""Measurements in a file: kept one by one, found again under the same conditions, and not spoilt by a broken line."""

from pathlib import Path

import pytest

from todome.tools.tuning.records import FILE, Records


def never() -> float:
    raise AssertionError("it was measured before")


def test_what_was_measured_is_found_again_under_the_same_conditions(tmp_path: Path):
    first = Records({"size": [8, 8]}, tmp_path / "run")
    assert first.measure({"layer": "up.1.0"}, lambda: {"mse": 0.5}) == {"mse": 0.5}
    again = Records({"size": [8, 8]}, tmp_path / "run")
    assert {"layer": "up.1.0"} in again
    assert again.measure({"layer": "up.1.0"}, never) == {"mse": 0.5}
    other = Records({"size": [16, 8]}, tmp_path / "run")
    assert {"layer": "up.1.0"} not in other
    assert other.measure({"layer": "up.1.0"}, lambda: 2) == 2
    assert Records({"size": [8, 8]}, tmp_path / "run").measure({"layer": "up.1.0"}, never) == {"mse": 0.5}


def test_a_line_that_was_cut_off_costs_that_measurement_alone(tmp_path: Path):
    for i in range(3):
        Records({}, tmp_path).measure({"what": i}, lambda i=i: i)
    path = tmp_path / FILE
    path.write_text(path.read_text()[:-10])
    records = Records({}, tmp_path)
    assert [{"what": i} in records for i in range(3)] == [True, True, False]
    records.measure({"what": 3}, lambda: 3)
    assert Records({}, tmp_path).measure({"what": 3}, never) == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full disk")
def test_on_a_full_disk_nothing_is_taken_for_measured(tmp_path: Path):
    (tmp_path / FILE).symlink_to("/dev/full")
    records = Records({}, tmp_path)
    with pytest.raises(OSError, match="No space left"):
        records.measure({"what": 0}, lambda: 0)
    assert {"what": 0} not in records
