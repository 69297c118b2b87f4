"""Files and folders that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

UNFINISHED = ".*.part"  # what a process that was killed may leave behind


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A file to write in place of another one, which it then replaces: a failure on the way leaves what was there.

    It is written in a new folder beside it that nobody else may enter: two writers do not meet, no one can put a link
    there, and the file gets the permissions that any new file gets. Its name says nothing, so that what a killed
    process leaves behind is not taken for a picture.
    """
    with TemporaryDirectory(prefix=".", suffix=".part", dir=path.parent, ignore_cleanup_errors=True) as folder:
        unfinished = Path(folder, "unfinished")
        yield unfinished
        os.replace(unfinished, path)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which then gets its place. There must be none, or an empty one, by then."""
    with atomic_write(path) as unfinished:
        unfinished.mkdir()
        yield unfinished
