"""Draws docs/figures/phases.svg: which keys of an 8 x 8 grid each phase keeps at factor 2 in four steps.

python docs/figures/phases.py
"""

from canvas import figure, save, square, title, words

from todome import Downsample
from todome.tokens.grid import Phase, downsampling_table, kept_rows

SIDE, FACTOR, STEPS, UNIT, GAP = 8, 2, 4, 12, 22
PANEL = SIDE * UNIT
LEFT, TOP, ROW = 128, 36, PANEL + 26
PHASES: dict[Phase, str] = {"fixed": "as ToDo", "dither": "the default", "random": "by chance"}


def kept(phase: Phase, step: int) -> list[int]:
    table = downsampling_table((SIDE, SIDE), FACTOR, phase, seed=0)
    return kept_rows(table, Downsample(FACTOR, phase).phase_index(step)).tolist()


def panel(left: float, top: float, seen: list[int]) -> list[str]:
    """Each key, the darker the more often it was seen; and the cells."""
    shapes = []
    for row in range(SIDE * SIDE):
        x, y, times = left + row % SIDE * UNIT, top + row // SIDE * UNIT, seen.count(row)
        shapes.append(square(x + 1, y + 1, UNIT - 2, "var(--kept)" if times else "var(--faint)"))
    for cell in range((SIDE // FACTOR) ** 2):
        across, down = cell % (SIDE // FACTOR), cell // (SIDE // FACTOR)
        shapes.append(
            square(left + across * FACTOR * UNIT, top + down * FACTOR * UNIT, FACTOR * UNIT, "none", "var(--line)")
        )
    return shapes


def phase_row(top: float, phase: Phase, note: str) -> list[str]:
    shapes = [title(24, top + PANEL / 2, f'"{phase}"', "start"), words(24, top + PANEL / 2 + 18, note, "start")]
    steps = [kept(phase, step) for step in range(STEPS)]
    for i, seen in enumerate(steps):
        shapes += panel(LEFT + i * (PANEL + GAP), top, seen)
    together = [row for seen in steps for row in seen]
    left = LEFT + STEPS * (PANEL + GAP) + GAP
    shapes += panel(left, top, together)
    share = f"{len(set(together)) / SIDE**2:.0%} of the keys"
    return [*shapes, words(left + PANEL + 14, top + PANEL / 2 + 4, share, "start")]


def drawing() -> str:
    shapes = [title(LEFT + i * (PANEL + GAP) + PANEL / 2, 22, f"step {i + 1}") for i in range(STEPS)]
    shapes.append(title(LEFT + STEPS * (PANEL + GAP) + GAP + PANEL / 2, 22, "seen in all"))
    for i, (phase, note) in enumerate(PHASES.items()):
        shapes += phase_row(TOP + i * ROW, phase, note)
    alt = (
        "Keys kept at factor 2: fixed keeps the same quarter at every step, dither all in four steps, random some twice"
    )
    return figure(LEFT + (STEPS + 1) * (PANEL + GAP) + 130, TOP + len(PHASES) * ROW - 8, alt, shapes)


if __name__ == "__main__":
    save(__file__, drawing())
