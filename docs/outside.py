"""A hook of mkdocs: what pages link to outside of docs/ becomes part of the site, or else its name in code font.

So a link between two files of the repository leads somewhere in a repository browser and on the site.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SHOWN = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/results/*.json",
    "flowers/*.jpg",
    "flowers/*.json",
    "flowers/README.md",
    "integrations/*/README.md",
    "integrations/*/*.png",
)
LOOK = "look.css"  # of the page and the report, in src/todome/tools; site.css is based on it
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^):#]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> None:
    for path in (path for pattern in SHOWN for path in sorted(ROOT.glob(pattern))):
        name = path.relative_to(ROOT).as_posix()
        file = File.generated(config, f"../{name}", abs_src_path=str(path), inclusion=InclusionLevel.INCLUDED)
        file.dest_uri = file.dest_uri.removeprefix("../")
        files.append(file)
    look = ROOT / "src/todome/tools" / LOOK
    files.append(File.generated(config, LOOK, abs_src_path=str(look), inclusion=InclusionLevel.INCLUDED))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def as_it_can_be(link: re.Match[str]) -> str:
        text, target = link.groups()
        name = normpath(join(dirname(page.file.src_uri), target))
        if files.get_file_from_path(name) or not (Path(config.docs_dir) / name).exists():
            return link[0]  # mkdocs finds it, or says that nobody does
        path = name.removeprefix("../").rstrip("/")
        return f"`{path}`" if text.strip("`/") == path else f"{text} (`{path}`)"

    return LINK.sub(as_it_can_be, markdown)
