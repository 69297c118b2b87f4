"""Header of a .safetensors file: names and shapes of its tensors, read without them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import invalid_value

SAFETENSORS = "a .safetensors file that is whole"
CUT_OFF = ("MetadataIncompleteBuffer", "not fully covered", "invalid header length")  # as safetensors says it
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


def read_header(path: Path, field: str = "model") -> Header:
    """The header of a file; what is no whole .safetensors file is refused by name of what it is."""
    from safetensors import SafetensorError, safe_open

    check_beginning(path, field)
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            return Header(path, shapes, file.metadata() or {})
    except SafetensorError as error:
        what = "is cut off" if any(words in str(error) for words in CUT_OFF) else "does not begin like one"
        remedy = f"This one {what}: download it again, or name another"
        raise invalid_value(field, str(path), SAFETENSORS, remedy) from None


def check_beginning(path: Path, field: str) -> None:
    with path.open("rb") as file:
        begin = file.read(24)
    if not begin:
        raise invalid_value(field, str(path), SAFETENSORS, "This one is empty: download it again")
    for start, (what, remedy) in OTHERS.items():
        if begin.startswith(start):
            raise invalid_value(field, str(path), SAFETENSORS, f"This is {what}. {remedy}")
