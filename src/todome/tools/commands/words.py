"""Options that take several words, as in `--size 512 1024 2048`, or maybe one, as `--ray`, which click lacks."""

import os
import re
from collections.abc import Container, Iterable
from typing import Any

from typer.core import TyperCommand

ADDRESS = re.compile(r"(ray://)?[\w.\-\[\]:]+:\d+|auto|local")


class OnCluster(TyperCommand):
    """Command whose option --ray may have an address: app.command(cls=OnCluster)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_address(args))


class SeveralWords(OnCluster):
    """Command whose options for lists take every word up to the next option: app.command(cls=SeveralWords)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        lists = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        return super().parse_args(ctx, repeat_options(args, lists))


def with_address(words: list[str]) -> list[str]:
    """Command line in which --ray has an address: where none is given, that of the environment or of this machine."""
    if "--ray" not in words:
        return words
    after = words.index("--ray") + 1
    given = after < len(words) and ADDRESS.fullmatch(words[after])
    return words if given else [*words[:after], os.environ.get("RAY_ADDRESS") or "local", *words[after:]]


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
