"""The page ends when it is told to, whatever is going on, and takes its folder with it."""

import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from page_process import PageProcess, page_process
from small_page import SMALL, event_of

LARGE = SMALL._replace(width=512, height=512, steps=50)  # a step of it takes seconds


@contextmanager
def visitors(page: PageProcess) -> Iterator[None]:
    """An open tab, a run that is in the middle of a step, one that waits for it, and their streams of events."""
    number = event_of(page.url, "draw")
    with ExitStack() as streams:
        held = []  # an iterator that is thrown away would close its stream
        for visitor, text in (("first", "Drawing with full attention"), ("second", "1 run of others before yours")):
            alive = streams.enter_context(httpx.stream("GET", f"{page.url}gradio_api/heartbeat/{visitor}")).iter_raw()
            next(alive)
            body = {"data": [*LARGE], "fn_index": number, "session_hash": visitor}
            httpx.post(f"{page.url}gradio_api/queue/join", json=body).raise_for_status()
            asked = {"params": {"session_hash": visitor}, "timeout": 60}
            stream = streams.enter_context(httpx.stream("GET", f"{page.url}gradio_api/queue/data", **asked))
            events = stream.iter_lines()
            assert any(text in line for line in itertools.islice(events, 200))
            held += [alive, events]
        yield


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGINT], 0), ([signal.SIGINT, signal.SIGINT], 130)],
    ids=["SIGINT", "SIGINT twice"],
)
def test_it_ends_in_the_middle_of_a_run(tmp_path: Path, signals: list[int], code: int):
    with page_process(tmp_path) as page, visitors(page):
        assert page.folders()
        began = time.monotonic()
        for number in signals:
            page.process.send_signal(number)
            time.sleep(0.1)  # signals that are sent at once arrive as one
        said = page.wait()
        print(f"It took {time.monotonic() - began:.2f} s.")
        assert page.process.returncode == code, page.log()
        assert said == ("Closed.\n" if code == 0 else "")
        assert not page.folders()
        assert "Traceback" not in page.log()
