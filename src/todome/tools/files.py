"""Files and folders that are there whole or not at all, and that replace nothing unasked."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

FORMATS = {  # by the ending of a file: a name for it, and what speaks for it
    ".png": ("picture.png", "the format that holds the settings"),
    ".json": ("plan.json", "which todome generate --plan reads"),
    ".html": ("report.html", "which a browser opens"),
}
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


def check_out(path: Path, *, ending: str = ".png", force: bool = False) -> None:
    """Refuses a file that could not be written or would replace another one: to be asked before any work is done."""
    folder, out = path.parent, f"out={str(path)!r}"
    if path.suffix.lower() != ending:
        example, reason = FORMATS[ending]
        better = path.with_suffix(ending) if path.name else example
        raise ValueError(f"{out} does not end in {ending}, {reason}. Use {better}.")
    if not folder.is_dir():
        raise FileNotFoundError(f"{out} is in a folder that does not exist. Make the folder {folder} first.")
    if path.is_dir():
        raise IsADirectoryError(f"{out} is a folder. Choose another name.")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{out} is in a folder you may not write to. Choose another than {folder.absolute()}.")
    if path.exists() and not force:
        raise FileExistsError(f"{out} exists already. Choose another name, or overwrite it with --force.")


def check_room(folder: Path, needed: int) -> None:
    """Refuses a disk that has not so many bytes left: to be asked before any work is done."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"There is no room in {folder}: up to {needed / 1e6:.1f} MB are needed, and {free / 1e6:.1f} MB are free. "
            "Make room, or choose another folder."
        )
