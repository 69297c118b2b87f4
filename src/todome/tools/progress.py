"""Progress on a terminal's standard error: what is being done, a bar with the time left. Elsewhere nothing is shown."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

PATIENCE = 300.0  # seconds over which the speed is averaged: steps are slow and even


class Bar:
    """A spinner with words, which becomes a bar when the number of steps is known."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        left = TimeRemainingColumn(compact=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), left)
        self.rows = Progress(
            *columns,
            console=console,
            transient=True,
            redirect_stdout=False,  # what is printed there may go into a pipe
            disable=not console.is_terminal,
            speed_estimate_period=PATIENCE,
        )
        self.row = self.rows.add_task("", total=None)

    def doing(self, words: str) -> None:
        """Shows what is being done, without an end in sight."""
        self.rows.reset(self.row, total=None, description=words)

    def steps(self, words: str, done: int, total: int) -> None:
        if self.rows.tasks[0].total != total:
            self.rows.reset(self.row, total=total)
        self.rows.update(self.row, description=words, completed=done)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Takes the bar away while something is printed."""
        self.rows.stop()
        yield
        self.rows.start()


@contextmanager
def progress_bar() -> Iterator[Bar]:
    bar = Bar()
    with bar.rows:
        yield bar


@contextmanager
def doing(words: str) -> Iterator[None]:
    """A spinner with words for as long as the block takes."""
    with progress_bar() as bar:
        bar.doing(words)
        yield
