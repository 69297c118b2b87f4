"""Files and folders that are there whole or not at all, and that replace nothing unasked."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import invalid_value

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
    out = f"out={str(path)!r}"
    if path.suffix.lower() != ending:
        example, reason = FORMATS[ending]
        better = path.with_suffix(ending) if path.name else example
        raise ValueError(f"{out} does not end in {ending}, {reason}. Use {better}.")
    check_out_file(path)
    if path.exists() and not force:
        raise FileExistsError(f"{out} exists already. Choose another name, or overwrite it with --force.")


def check_out_file(path: Path) -> None:
    """Refuses a file that could not be written, or take the place of what is there."""
    folder, out = path.parent, f"out={str(path)!r}"
    if not os.path.lexists(folder):
        raise FileNotFoundError(f"{out} is in a folder that does not exist. Make the folder {folder} first.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise IsADirectoryError(f"{out} is {'a folder' if path.is_dir() else 'no plain file'}. Choose another name.")
    check_writable(folder, path.name, out)


def check_out_folder(path: Path, field: str = "out") -> None:
    """Refuses a folder into which nothing could be written, or that could not be made."""
    whole = path.absolute()
    there = next((one for one in (whole, *whole.parents) if os.path.lexists(one)), whole)
    check_writable(there, whole.name, f"{field}={str(path)!r}")


def check_writable(folder: Path, name: str, given: str) -> None:
    """Tries whether a file of that name can be made in a folder: permissions alone do not tell."""
    if not os.path.isdir(folder):
        raise NotADirectoryError(
            f"{given} needs a folder in place of {folder}, which is something else. Choose another."
        )
    try:
        with TemporaryDirectory(prefix=".", suffix=".part", dir=folder) as made:
            Path(made, name or "any").touch()
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        reason = f"cannot be written to {folder.absolute()}: {error.strerror}"
        raise PermissionError(f"{given} {reason}. Choose another place.") from None


def check_room(folder: Path, needed: int) -> None:
    """Refuses a disk that has not so many bytes left: to be asked before any work is done."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"There is no room in {folder}: up to {needed / 1e6:.1f} MB are needed, and {free / 1e6:.1f} MB are free. "
            "Make room, or choose another folder."
        )


def inside(folder: Path, name: str, field: str) -> Path:
    """File of that name in a folder, for names that were read from a file: none may lead out of it, links resolved."""
    path = folder / name if isinstance(name, str) and "\0" not in name else folder
    if Path(os.path.realpath(folder)) not in Path(os.path.realpath(path)).parents or Path(name).is_absolute():
        allowed = f"the name of a file inside {folder}"
        raise invalid_value(field, name, allowed, "The file that says so was changed: use one that todome wrote")
    return path
