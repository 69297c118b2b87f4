"""Draws docs/figures/report.png: what `todome report` makes of a small evaluation, seen by Chromium.

    python docs/figures/report.py --work FOLDER

The evaluation takes some minutes on a CPU and goes on where it was interrupted.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from todome.tools.measuring.evaluation import carry_out, plan_for
from todome.tools.measuring.report import write_report
from todome.tools.pictures import write_png
from todome.tools.pipelines import EMBEDDED, weights_of

PROMPTS = ("a red tulip", "white daisies", "a sunflower, close-up", "a pink rose")
METHODS = ("todome:2", "dense:16", "dense:12", "todo:2", "tome:0.5")
SEEN, WIDTH, BELOW = 1200, 900, 28  # pixels: of the page, of the figure, and below the last picture


def photographed(report: Path) -> Image.Image:
    """The report from its title to the last picture that is open."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        page = browser.new_page(viewport={"width": SEEN, "height": 1200})
        page.goto(report.resolve().as_uri())
        page.locator("figure.case:visible").first.wait_for()
        end = max(
            box["y"] + box["height"] for f in page.locator("figure.case:visible").all() if (box := f.bounding_box())
        )
        seen = Image.open(io.BytesIO(page.screenshot(full_page=True)))
        browser.close()
    shown = seen.convert("RGB").crop((0, 0, SEEN, min(seen.height, round(end) + BELOW)))
    return shown.resize((WIDTH, round(shown.height * WIDTH / SEEN)), Image.Resampling.LANCZOS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where the evaluation goes")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    options = parser.parse_args()
    plan = plan_for(EMBEDDED, PROMPTS, methods=METHODS, pictures=len(PROMPTS), seed=3, steps=options.steps)
    carry_out(plan, options.work, device="cpu")
    seen = photographed(write_report(options.work, None, force=True))
    write_png(seen, options.out, weights_of(EMBEDDED), force=True)


if __name__ == "__main__":
    main()
