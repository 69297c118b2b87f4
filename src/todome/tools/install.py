"""Installation of todome into user interfaces that have an integration, and its removal.

What is put there is a folder of its own: the integration and a copy of the core of todome, so that nothing has to be
installed in the environment of the host. A marker in it lists every file, and only these are ever removed.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..errors import invalid_value
from .files import atomic_folder, check_writable

PACKAGE = Path(__file__).parents[1]
SOURCES = (PACKAGE / "integrations", PACKAGE.parent.parent / "integrations")  # in a wheel; in a checkout
NAME = "todome-extension"  # which cannot be imported, so that nobody takes it for todome itself
MARKER = "installed-by-todome.json"
Ignore = Callable[[Any, list[str]], Iterable[str]]  # the names in a folder that are left out
FINDER = "find_todome.py"  # what every integration begins with
LEFT_OUT = shutil.ignore_patterns("__pycache__", "vendor", "*.png")
# The core needs torch alone, and nobody there writes for tomesd.
NOT_CORE = shutil.ignore_patterns("__pycache__", "__main__.py", "integrations", "tomesd.py", "tools")


class Host(NamedTuple):
    """Program with extensions: how its folder is recognised, and where extensions go in it."""

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
    folder, put = host.folder_in(path), link_entries if link else copy_entries
    integration = integration_for(host)
    check_replaceable(folder)
    check_writable(folder.parent, folder.name, f"{host.field}={str(path)!r}")
    with atomic_folder(folder) as new:
        put(integration.parent, new, all_but(FINDER))
        put(integration, new, LEFT_OUT)
        put(PACKAGE, new / "vendor" / PACKAGE.name, NOT_CORE)
        marker = {"todome": __version__, "files": sorted(files_in(new))}
        (new / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            remove_installed(folder)
    return folder


def uninstall(host: Host, path: Path) -> Path:
    """Removes what `install` put into a host. Files of others stay, and the folder with them."""
    folder = host.folder_in(path)
    if not has_marker(folder):
        raise invalid_value(
            host.field, str(path), f"a folder into which todome was installed, with {MARKER}", "Nothing was removed"
        )
    remove_installed(folder)
    return folder


def integration_for(host: Host, sources: Sequence[Path] = SOURCES) -> Path:
    """Folder of the integration for a host, in this copy of todome."""
    found = [source / host.field for source in sources if (source / host.field).is_dir()]
    if not found:
        remedy = "Install todome with pip, or run this in a checkout"
        raise invalid_value(
            "todome", str(PACKAGE), f"a copy of todome that holds the integration for {host.title}", remedy
        )
    return found[0]


def all_but(name: str) -> Ignore:
    """Leaves out everything but the entry of this name."""
    return lambda folder, names: set(names) - {name}


def copy_entries(source: Path, to: Path, ignore: Ignore) -> None:
    shutil.copytree(source, to, ignore=ignore, dirs_exist_ok=True)


def link_entries(source: Path, to: Path, ignore: Ignore) -> None:
    """Links to the entries of a folder, one by one: others are put beside them, and some are left out."""
    to.mkdir(parents=True, exist_ok=True)
    names = os.listdir(source)
    for name in set(names) - set(ignore(str(source), names)):
        target = (source / name).resolve()
        (to / name).symlink_to(target, target.is_dir())


def files_in(folder: Path) -> Iterator[str]:
    """Every file and link below a folder, but for what Python itself puts there. Links are not followed."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(place, name).relative_to(folder).as_posix() for name in (*files, *links))


def has_marker(folder: Path) -> bool:
    """Whether todome made a folder. It makes neither folders nor markers that are links."""
    marker = folder / MARKER
    return marker.is_file() and not folder.is_symlink() and not marker.is_symlink()


def check_replaceable(folder: Path) -> None:
    """Refuses to replace what todome did not put there."""
    if not os.path.lexists(folder):
        return
    if not has_marker(folder):
        remedy = "Move it away first"
        raise invalid_value(
            "folder", str(folder), "one that does not exist, or that todome install has made", remedy, FileExistsError
        )
    foreign = sorted(set(files_in(folder)) - {*listed_files(folder), MARKER})
    if foreign:
        allowed = "one with nothing in it but what todome install has put there"
        raise invalid_value("folder", str(folder), allowed, f"Move {foreign[0]} elsewhere first", FileExistsError)


def listed_files(folder: Path) -> list[str]:
    """Files that the marker of a folder lists. Refuses one that lists anything else than files of that folder."""
    allowed, remedy = f"one whose {MARKER} lists files of this folder", "nothing was removed; remove it by hand"
    try:
        names = json.loads((folder / MARKER).read_text(encoding="utf-8"))["files"]
        outside = [name for name in names if not is_inside(folder, name)]
    except (KeyError, TypeError, ValueError):
        raise invalid_value("folder", str(folder), allowed, f"It cannot be read: {remedy}") from None
    if outside:
        raise invalid_value("folder", str(folder), allowed, f"It lists {outside[0]!r}: {remedy}")
    return names


def is_inside(folder: Path, name: str) -> bool:
    """Whether a name is of something below a folder. What it names may be a link, but no folder on the way to it."""
    parent = (folder / name).parent.resolve()
    return parent.is_relative_to(folder.resolve()) and ".." not in Path(name).parts and not Path(name).is_absolute()


def remove_installed(folder: Path) -> None:
    """Removes the files that were put into a folder, and then all folders that hold nothing else."""
    for name in [*listed_files(folder), MARKER]:
        file = folder / name
        if file.is_symlink() or file.is_file():
            file.unlink()
    for place, _, _ in os.walk(folder, topdown=False):
        if Path(place).name == "__pycache__":
            shutil.rmtree(place)
        elif not os.listdir(place):
            os.rmdir(place)
