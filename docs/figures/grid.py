"""Draws docs/figures/grid.svg: a grid of tokens, its cells, and which keys one query attends to.

python docs/figures/grid.py
"""

from canvas import figure, line, save, square, title, words

from todome.tokens.grid import cell_of, downsampling_table, kept_rows, nearest_spans

SIDE, UNIT, GAP = 10, 17, 26
PANEL = SIDE * UNIT
QUERY = 7 * SIDE + 2  # the row of the token that asks
FACTORS = {"dense": 1, "factor 1.5": 1.5, "factor 2": 2, "factor 3": 3}


def middle(row: int, left: float, top: float) -> tuple[float, float]:
    return left + (row % SIDE + 0.5) * UNIT, top + (row // SIDE + 0.5) * UNIT


def cell_lines(left: float, top: float, side: int) -> list[str]:
    edges = [int(start) * UNIT for start in nearest_spans(SIDE, side).starts] + [PANEL]
    across = [line([(left, top + edge), (left + PANEL, top + edge)], "var(--line)") for edge in edges]
    return across + [line([(left + edge, top), (left + edge, top + PANEL)], "var(--line)") for edge in edges]


def panel(left: float, top: float, name: str, factor: float) -> list[str]:
    kept = kept_rows(downsampling_table((SIDE, SIDE), factor, "dither", seed=1), 0).tolist()
    shapes = [title(left + PANEL / 2, top - 12, name)]
    for row in range(SIDE * SIDE):
        x, y = middle(row, left, top)
        fill = "var(--kept)" if row in kept else "var(--faint)"
        shapes.append(square(x - UNIT / 2 + 2, y - UNIT / 2 + 2, UNIT - 4, fill))
    shapes += cell_lines(left, top, cell_of((SIDE, SIDE), factor).side) if factor > 1 else []
    query = middle(QUERY, left, top)
    thin = 'stroke-opacity="0.45"'
    shapes += [line([query, middle(row, left, top)], "var(--query)", 0.8, thin) for row in kept if row != QUERY]
    shapes.append(f'<circle cx="{query[0]:g}" cy="{query[1]:g}" r="6" fill="var(--query)"/>')
    return [*shapes, words(left + PANEL / 2, top + PANEL + 20, f"{len(kept)} keys of {SIDE * SIDE}")]


def drawing() -> str:
    shapes = []
    for i, (name, factor) in enumerate(FACTORS.items()):
        shapes += panel(GAP + i * (PANEL + GAP), 38, name, factor)
    alt = "One query and the keys it attends to on a grid of 10 x 10 tokens, dense and with factors 1.5, 2 and 3"
    return figure(len(FACTORS) * (PANEL + GAP) + GAP, PANEL + 76, alt, shapes)


if __name__ == "__main__":
    save(__file__, drawing())
