"""`todome app` ends when it is told to, whatever is going on, and takes its folder with it."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from asking import SMALL, events, free_port, join, started


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_it_ends_in_the_middle_of_a_run(tmp_path: Path, number: signal.Signals):
    """With an open tab, a run that is in the middle of a long step, and one that waits for it."""
    words = ["-m", "todome", "app", "--device=cpu", f"--port={free_port()}"]
    with started(tmp_path, *words) as process, ExitStack() as streams:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[1:3] == ["is", "at"], (tmp_path / "log").read_text()
        assert process.stdout.readline() == "Ctrl+C ends it.\n"
        large, held = SMALL._replace(width=512, height=512, steps=50), []
        for tab, text in (("first", "Drawing with full attention"), ("second", "estimation")):
            join(said[3], large, tab).raise_for_status()
            held.append(streams.enter_context(events(said[3], tab)))
            assert any(text in line for line in held[-1])
        assert list(tmp_path.glob("todome-app-*"))
        process.send_signal(number)
        assert process.communicate(timeout=30)[0] == "Closed.\n"
        assert process.returncode == 0
        assert not list(tmp_path.glob("todome-app-*"))
        log = (tmp_path / "log").read_text()
        assert "Traceback" not in log, log
