"""Jinja templates of HTML pages. Everything that is put into them is escaped, and a missing name is an error."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template


@cache
def load_template(path: Path) -> Template:
    loader = FileSystemLoader(path.parent)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template(path.name)


def look() -> str:
    """Style that the page, the report and the site have in common."""
    return Path(__file__).with_name("look.css").read_text(encoding="utf-8")
