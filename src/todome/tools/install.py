"""Putting todome into the user interfaces it has an integration for, and taking it out again.

What is put there is a folder of its own: the integration, and a copy of todome, so that nothing has to be installed in
the environment of the host. A marker in it lists every file, and only these are ever taken away.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .. import __version__
from ..errors import invalid_value

PACKAGE = Path(__file__).parents[1]
SOURCES = (PACKAGE / "integrations", PACKAGE.parent.parent / "integrations")  # in a wheel; in a checkout
NAME = "todome-extension"  # which cannot be imported, so that nobody takes it for todome itself
MARKER = "installed-by-todome.json"
LEFT_OUT = shutil.ignore_patterns("__pycache__", "integrations", "vendor")


class Host(NamedTuple):
    """A program with extensions: how its folder is recognised, and where extensions go in it."""

    field: str
    title: str
    marks: tuple[tuple[str, ...], ...]  # one of each must be there
    extensions: str

    def folder_in(self, path: Path) -> Path:
        """Where the integration belongs; refuses anything that is not such a program."""
        if not all(any((path / name).exists() for name in names) for names in self.marks):
            named = ", ".join(" or ".join(names) for names in self.marks)
            raise invalid_value(
                self.field, str(path), f"the folder of {self.title}, which has {named}", "Name that folder"
            )
        return path / self.extensions / NAME


WEBUI = Host(
    "webui",
    "AUTOMATIC1111's stable-diffusion-webui or Forge",
    (("webui.py", "launch.py"), ("modules",), ("extensions",)),
    "extensions",
)
COMFYUI = Host("comfyui", "ComfyUI", (("main.py",), ("comfy",), ("custom_nodes",)), "custom_nodes")


def install(host: Host, path: Path, link: bool = False) -> Path:
    """Puts the integration and todome into a host, all or nothing; in place of what was put there before."""
    folder = host.folder_in(path)
    refuse_foreign(folder)
    with built_beside(folder) as new:
        put(source_of(host), new, link)
        put(PACKAGE, new / "vendor" / PACKAGE.name, link, whole=True)
        marker = {"todome": __version__, "files": sorted(files_in(new))}
        (new / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            take_away(folder)
        os.replace(new, folder)
    return folder


def uninstall(host: Host, path: Path) -> Path:
    """Takes away what `install` put into a host. Files of others stay, and the folder with them."""
    folder = host.folder_in(path)
    if not (folder / MARKER).is_file():
        raise invalid_value(
            host.field, str(path), f"a folder into which todome was installed, with {MARKER}", "Nothing was removed"
        )
    take_away(folder)
    return folder


def source_of(host: Host) -> Path:
    found = [source / host.field for source in SOURCES if (source / host.field).is_dir()]
    if not found:
        remedy = "Install todome with pip, or run this in a checkout"
        raise invalid_value(
            "todome", str(PACKAGE), f"a copy of todome that holds the integration for {host.title}", remedy
        )
    return found[0]


def put(source: Path, to: Path, link: bool, whole: bool = False) -> None:
    """Copies a folder, or links to what is in it; to the folder as a `whole` where nothing is added to it."""
    if not link:
        shutil.copytree(source, to, ignore=LEFT_OUT)
        return
    links = {to: source} if whole else {to / entry.name: entry for entry in source.iterdir()}
    for place, target in links.items():
        if target.name not in LEFT_OUT(str(source), [target.name]):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target.resolve(), target.is_dir())


@contextmanager
def built_beside(folder: Path) -> Iterator[Path]:
    """A folder that is filled before it gets its name: a failure on the way leaves what was there."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def files_in(folder: Path) -> Iterator[str]:
    """Every file and link below a folder, but for what Python itself puts there."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(place, name).relative_to(folder).as_posix() for name in (*files, *links))


def refuse_foreign(folder: Path) -> None:
    """Refuses to replace what todome did not put there."""
    if not os.path.lexists(folder):
        return
    if not (folder / MARKER).is_file():
        remedy = "Move it away first"
        raise invalid_value(
            "folder", str(folder), "one that does not exist, or that todome install has made", remedy, FileExistsError
        )
    foreign = sorted(set(files_in(folder)) - {*files_put(folder), MARKER})
    if foreign:
        allowed = "one with nothing in it but what todome install has put there"
        raise invalid_value("folder", str(folder), allowed, f"Move {foreign[0]} elsewhere first", FileExistsError)


def files_put(folder: Path) -> list[str]:
    return json.loads((folder / MARKER).read_text(encoding="utf-8"))["files"]


def take_away(folder: Path) -> None:
    """Removes the files that were put into a folder, and then all folders that hold nothing else."""
    for name in [*files_put(folder), MARKER]:
        (folder / name).unlink(missing_ok=True)
    for place, _, _ in os.walk(folder, topdown=False):
        if Path(place).name == "__pycache__":
            shutil.rmtree(place)
        elif not os.listdir(place):
            os.rmdir(place)
