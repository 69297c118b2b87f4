"""Progress on a terminal's standard error: what is being done, a bar with the time left. Elsewhere nothing is shown."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tqdm import tqdm

WORDS = "{desc}"
BAR = "{desc} {bar} {n_fmt}/{total_fmt} {remaining}"


class Bar:
    """Words, with a bar after them when the number of steps is known."""

    def __init__(self) -> None:
        self.bar = tqdm(disable=None, leave=False, bar_format=WORDS, smoothing=0)  # steps are slow and even

    def doing(self, words: str) -> None:
        """Shows what is being done, without an end in sight."""
        self.bar.bar_format = WORDS
        self.bar.set_description_str(words)

    def steps(self, words: str, done: int, total: int) -> None:
        self.bar.set_description_str(words, refresh=False)
        if self.bar.total != total:
            self.bar.bar_format = BAR
            self.bar.reset(total)
            self.bar.initial = done  # the time left is told by the steps that follow
        self.bar.update(done - self.bar.n)

    def hidden(self) -> AbstractContextManager[None]:
        """Takes the bar away while something is printed."""
        return tqdm.external_write_mode(sys.stdout)


@contextmanager
def progress_bar() -> Iterator[Bar]:
    bar = Bar()
    with bar.bar:
        yield bar


@contextmanager
def doing(words: str) -> Iterator[None]:
    """Words for as long as the block takes."""
    with progress_bar() as bar:
        bar.doing(words)
        yield
