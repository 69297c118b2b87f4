"""Options that take several words, as in `--size 512 1024 2048`, which click lacks."""

from collections.abc import Container, Iterable
from typing import Any

from typer.core import TyperCommand


class SeveralWords(TyperCommand):
    """Command whose options for lists take every word up to the next option: app.command(cls=SeveralWords)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        lists = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        return super().parse_args(ctx, repeat_options(args, lists))


def repeat_options(words: Iterable[str], lists: Container[str]) -> list[str]:
    """Command line as click reads it, with the option before each of its words: `--size 512 --size 1024`."""
    repeated, option = [], ""
    for word in words:
        if word.startswith("-"):
            option = word.partition("=")[0]
        elif option in lists and repeated[-1] != option:
            repeated.append(option)
        repeated.append(word)
    return repeated
