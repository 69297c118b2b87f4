"""Draws docs/figures/dither.svg: which keys of an 8 x 8 grid are kept at factor 2, by ToDo and by todome.

python docs/figures/dither.py
"""

from pathlib import Path

from todome.grid import downsampled_order, kept_rows

SIDE, FACTOR, UNIT, GAP = 8, 2, 16, 22
STYLE = "font: 13px system-ui, sans-serif; fill: #57606a"


def square(x: float, y: float, size: float, fill: str, line: str = "none") -> str:
    return f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="2" fill="{fill}" stroke="{line}"/>'


def panel(left: float, kept: list[int], caption: str) -> list[str]:
    shapes = []
    for row in range(SIDE * SIDE):
        x, y = left + row % SIDE * UNIT, row // SIDE * UNIT
        shapes.append(square(x + 1, y + 1, UNIT - 2, "#0969da" if row in kept else "#d0d7de"))
    for cell in range((SIDE // FACTOR) ** 2):
        x, y = left + cell % (SIDE // FACTOR) * FACTOR * UNIT, cell // (SIDE // FACTOR) * FACTOR * UNIT
        shapes.append(square(x, y, FACTOR * UNIT, "none", "#8c959f"))
    middle = left + SIDE * UNIT / 2
    shapes.append(f'<text x="{middle}" y="{SIDE * UNIT + 20}" text-anchor="middle" style="{STYLE}">{caption}</text>')
    return shapes


def main() -> None:
    fixed = downsampled_order((SIDE, SIDE), FACTOR, "fixed", 0)
    dithered = downsampled_order((SIDE, SIDE), FACTOR, "dither", 0)
    panels = [("ToDo: every step", fixed, 0)]
    panels += [(f"todome: step {step + 1}", dithered, step) for step in range(FACTOR * FACTOR)]
    shapes = []
    for i, (caption, order, step) in enumerate(panels):
        shapes += panel(1 + i * (SIDE * UNIT + GAP), kept_rows(order, step).tolist(), caption)
    width, height = len(panels) * (SIDE * UNIT + GAP) - GAP + 2, SIDE * UNIT + 30
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -1 {width} {height}" role="img">'
    title = "<title>Keys kept at factor 2: ToDo keeps the same quarter at every step, todome all in four steps</title>"
    Path(__file__).with_suffix(".svg").write_text("\n".join([head, title, *shapes, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
