"""Pictures to learn from and their captions: a folder with name.txt beside name.png, or with one metadata.jsonl."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import ExifTags, Image, ImageOps

from ...errors import invalid_value
from ..pipelines import Size

ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
LIST = "metadata.jsonl"  # as the image folders of Hugging Face's datasets have it
LINE = '{"file_name": "a.png", "text": "a tulip"} on each line'


class Example(NamedTuple):
    """A picture with its caption. The size is that of the picture upright."""

    path: Path
    caption: str
    size: Size
    mirrored: bool = False


def read_examples(folder: Path, caption: str | None = None) -> list[Example]:
    """The pictures of a folder in the order of their names.

    Args:
        folder: Where they are.
        caption: For those that have none.
    """
    if not folder.is_dir():
        raise invalid_value(
            "data", str(folder), "a folder of pictures", "There is none of that name", FileNotFoundError
        )
    captions = dict(sorted(read_list(folder / LIST) if (folder / LIST).exists() else read_folder(folder)))
    if not captions:
        raise invalid_value("data", str(folder), f"a folder with pictures ({', '.join(ENDINGS)})", "This one has none")
    bare = [path.name for path, text in captions.items() if text is None]
    if bare and caption is None:
        allowed = f"pictures with a caption each, in NAME.txt beside NAME.png or in one {LIST}"
        remedy = (
            f"{len(bare)} of {len(captions)} have none, {bare[0]} first: write them, or give one for all as caption"
        )
        raise invalid_value("data", str(folder), allowed, remedy)
    return [Example(path, caption or "" if text is None else text, size_of(path)) for path, text in captions.items()]


def read_folder(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Pictures of a folder, each with the text in NAME.txt beside it."""
    for path in folder.iterdir():
        if path.suffix.lower() in ENDINGS and not path.name.startswith("."):
            text = path.with_suffix(".txt")
            yield path, text_of(text) if text.exists() else None


def read_list(path: Path) -> Iterator[tuple[Path, str | None]]:
    """Pictures of a metadata.jsonl, each with its text."""
    for number, line in enumerate(text_of(path).splitlines(), start=1):
        try:
            entry = json.loads(line)
            picture, text = path.parent / entry["file_name"], entry.get("text")
        except (AttributeError, KeyError, TypeError, ValueError):
            raise invalid_value("data", f"{path}:{number}", LINE, "Correct this line or remove it") from None
        if not picture.is_file():
            raise invalid_value("data", f"{path}:{number}", "pictures that are there", f"{entry['file_name']} is not")
        yield picture, None if text is None else str(text)


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise invalid_value("data", str(path), "texts in UTF-8", "Save it as such") from None


def open_picture(path: Path) -> Image.Image:
    """A picture upright, in RGB, on white where it is transparent."""
    with open_image(path) as file:
        picture = ImageOps.exif_transpose(file)
        if not picture.has_transparency_data:
            return picture.convert("RGB")
        picture = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def size_of(path: Path) -> Size:
    """The size of a picture upright, without reading all of it."""
    with open_image(path) as file:
        width, height = file.size
        lies = file.getexif().get(ExifTags.Base.Orientation, 1) >= 5
        return (height, width) if lies else (width, height)


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(path) as file:
            yield file
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise invalid_value("data", str(path), "pictures that can be opened", "Repair it or remove it") from None


def fingerprints(examples: Sequence[Example], folder: Path) -> dict[str, str]:
    """Hashes of pictures with their captions, by name, to find out whether they are still the same."""
    return {
        os.path.relpath(example.path, folder): hashlib.sha256(
            example.path.read_bytes() + example.caption.encode()
        ).hexdigest()
        for example in examples
    }


def first_change(old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
    """What has changed between two readings of a folder, in words."""
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            return f"{name} {'is new' if name not in old else 'is gone' if name not in new else 'has changed'}"
    return None
