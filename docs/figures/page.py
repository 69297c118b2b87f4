"""Takes page.jpg, the picture of the page in the docs, in the Chromium of the system.

    python docs/figures/page.py

It shows the page as it opens, with the example that example.py makes: run that first.
"""

import io
import json
import shutil
import socket
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from todome.tools.app.form import Offer
from todome.tools.app.server import Address, serve_page
from todome.tools.generate import Settings
from todome.tools.pipelines import EMBEDDED, open_pipeline, weights_of


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def take_picture(url: str, file: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 720}, device_scale_factor=1.5)
        tab.goto(url)
        tab.locator(".finding").wait_for(timeout=120_000)
        tab.wait_for_function("[...document.images].every((image) => image.complete)")
        seen = Image.open(io.BytesIO(tab.screenshot()))
        browser.close()
    seen.convert("RGB").save(file, quality=88, comment=json.dumps(weights_of(EMBEDDED)))


def main() -> None:
    with serve_page(open_pipeline(), Offer(Settings(), 512, 50), Address(port=free_port())) as url:
        take_picture(url, Path(__file__).with_name("page.jpg"))


if __name__ == "__main__":
    main()
