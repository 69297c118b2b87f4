"""The site is built without a network, and strictly: mkdocs refuses links to nowhere and pages that nobody reaches."""

import compileall
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pages import ROOT

import todome
import todome.tools.metrics

pytestmark = pytest.mark.xdist_group("site")
NOBODY = "http://127.0.0.1:9"  # where no proxy listens


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, where no network can be reached, after the scripts of the figures have run."""
    compileall.compile_dir(ROOT / "docs", quiet=1)  # as importing them does
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "http_proxy": NOBODY, "https_proxy": NOBODY}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_reference_has_every_public_name(site: Path):
    anchors = set(re.findall(r'id="([^"]+)"', (site / "reference/index.html").read_text()))
    assert {f"todome.{name}" for name in todome.__all__} <= anchors
    assert {f"todome.tools.metrics.{name}" for name in todome.tools.metrics.__all__} <= anchors


def test_no_source_of_a_figure_is_published(site: Path):
    assert not [*site.rglob("*.py"), *site.rglob("__pycache__")]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scheme", "width", "pages"),
    [("light", 1280, "speed/*.html"), pytest.param("dark", 390, "**/index.html", marks=pytest.mark.thorough)],
)
def test_in_a_browser_everything_comes_from_here(
    browser: Any, site: Path, address: str, scheme: str, width: int, pages: str
):
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    page, troubles, asked = context.new_page(), [], []
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for path in site.glob(pages):
        page.goto(address + path.relative_to(site).as_posix(), wait_until="networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    paper = brightness(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    ink = brightness(page.evaluate("getComputedStyle(document.querySelector('article')).color"))
    assert (paper > 200 and ink < 80) if scheme == "light" else (paper < 80 and ink > 150)
    assert not troubles
    assert asked
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)
    context.close()


@pytest.mark.thorough
def test_search_finds(browser: Any, address: str):
    page = browser.new_page()
    page.goto(address)
    page.click("input[name=query]")
    page.keyboard.type("NothingToReduce")
    page.wait_for_selector(".md-search-result__link[href*='reference']", timeout=10_000)
    page.close()
