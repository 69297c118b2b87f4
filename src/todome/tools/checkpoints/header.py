"""Header of a .safetensors file: names and shapes of its tensors, read without them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from ...errors import invalid_value

LENGTH = 8  # bytes that say how long the header is
LONGEST = 100_000_000  # bytes of a header that safetensors itself accepts
BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}  # of an element; others have one
SAFETENSORS = "a .safetensors file that is whole"
CONVERT = (
    "Convert it where you trust it: safetensors.torch.save_file(torch.load(FILE)['state_dict'], 'NAME.safetensors')"
)
OTHERS = {  # how files begin that are something else
    b"PK\x03\x04": ("a pickle (.ckpt, .pt or .pth), which can run any code when it is opened", CONVERT),
    b"\x80\x02": ("a pickle (.ckpt, .pt or .pth), which can run any code when it is opened", CONVERT),
    b"GGUF": ("a GGUF file, which is quantised", "Use the model's .safetensors file"),
    b"version https://git-lfs": ("a pointer of git-lfs, not the file itself", "Fetch it with git lfs pull"),
    b"<!DOCTYPE": ("a web page, not the file itself", "Download it again: the link needs a login, perhaps"),
    b"<html": ("a web page, not the file itself", "Download it again: the link needs a login, perhaps"),
}


@dataclass(frozen=True)
class Header:
    """Names and shapes of the tensors in a file, and the texts that its maker added."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    texts: Mapping[str, str]

    def under(self, prefix: str) -> "Header":
        """The tensors whose names begin so, without that beginning."""
        found = {name[len(prefix) :]: shape for name, shape in self.shapes.items() if name.startswith(prefix)}
        return Header(self.path, found, self.texts)

    def count(self, pattern: str) -> int:
        """How many of pattern.format(0), pattern.format(1), ... some name begins with, without a gap."""
        return next(i for i in range(len(self.shapes) + 1) if not any(self.beginning_with(pattern.format(i))))

    def beginning_with(self, prefix: str) -> Iterator[str]:
        return (name for name in self.shapes if name.startswith(prefix))

    @property
    def parameters(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())


def read_header(path: Path, field: str = "model") -> Header:
    """The header of a file; what is no whole .safetensors file is refused by name of what it is."""
    with path.open("rb") as file:
        begin = file.read(24)
        check_beginning(begin, path, field)
        length = int.from_bytes(begin[:LENGTH], "little")
        file.seek(LENGTH)
        text = file.read(length) if length <= LONGEST else b""
    try:
        found = json.loads(text)
        texts = found.pop("__metadata__", {})
        shapes = {name: tuple(entry["shape"]) for name, entry in found.items()}
        end = LENGTH + length + max((entry["data_offsets"][1] for entry in found.values()), default=0)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        remedy = "This one does not begin like one: download it again, or name another"
        raise invalid_value(field, str(path), SAFETENSORS, remedy) from None
    if path.stat().st_size < end:
        here = f"{path.stat().st_size / 1e6:,.1f} MB of {end / 1e6:,.1f} are here"
        raise invalid_value(field, str(path), SAFETENSORS, f"This one is cut off, {here}: download it again")
    return Header(path, shapes, texts)


def check_beginning(begin: bytes, path: Path, field: str) -> None:
    if not begin:
        raise invalid_value(field, str(path), SAFETENSORS, "This one is empty: download it again")
    for start, (what, remedy) in OTHERS.items():
        if begin.startswith(start):
            raise invalid_value(field, str(path), SAFETENSORS, f"This is {what}. {remedy}")
