"""What the drawn figures share: shapes as SVG, and colours that turn with the reader's light or dark page."""

from collections.abc import Iterable, Sequence
from pathlib import Path

COLOURS = """
svg { font: 13px system-ui, sans-serif;
  --paper: #fff; --ink: #24292f; --soft: #59636e; --line: #afb8c1; --faint: #e4e8ec;
  --kept: #0969da; --query: #cf5a00; --other: #8250df }
@media (prefers-color-scheme: dark) {
  svg { --paper: #1e2129; --ink: #e6edf3; --soft: #a5adb6; --line: #59616b; --faint: #343a43;
    --kept: #5ba3ff; --query: #ff9a4d; --other: #c297ff }
}
text { fill: var(--soft) } .title { fill: var(--ink); font-weight: 600 }
"""


def square(x: float, y: float, side: float, fill: str = "none", stroke: str = "none", more: str = "") -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{side:g}" height="{side:g}" rx="2" fill="{fill}" stroke="{stroke}" {more}/>'
    )


def line(points: Iterable[tuple[float, float]], stroke: str, width: float = 1, more: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{width:g}" {more}/>'


def words(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {more}>{text}</text>'


def title(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return words(x, y, text, anchor, 'class="title"')


def figure(width: float, height: float, alt: str, shapes: Sequence[str]) -> str:
    """A whole SVG file; `alt` is what it says to those who cannot see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
    paper = f'<rect width="{width:g}" height="{height:g}" rx="6" fill="var(--paper)"/>'
    return "\n".join([head, f"<title>{alt}</title>", f"<style>{COLOURS}</style>", paper, *shapes, "</svg>"]) + "\n"


def save(script: str, drawing: str) -> None:
    """Next to the script, under its name."""
    Path(script).with_suffix(".svg").write_text(drawing)
