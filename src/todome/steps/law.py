"""How close a schedule of full and partial steps will be, from the noise levels of the run alone.

Interpolation's error term: a line through the values at x_a and x_b, read at x_j, is wrong by half of its curvature
times (x_j - x_a)(x_j - x_b), with x = log sigma. What that does to the picture is one curve for each kind of step:

    MSE = sum over partial steps of ((x_j - x_a)(x_j - x_b) / 2)^2 K(sigma_j),   ln K = k0 + k1 x + k2 x^2
    dB = -10 log10 MSE, of the picture, range 1

A kind is a letter: F all stages of both halves of guidance, f all of the conditional half, D and d the first two stages
of both and of one, S and s the first stage, o nothing. (T and t, three stages, can be chosen by hand.)
"""

import math
from dataclasses import dataclass

FULL = "F"
STAGES = {"o": 0, "S": 1, "s": 1, "D": 2, "d": 2, "T": 3, "t": 3}  # that are computed; all in other kinds
CONDITIONAL = "ftds"  # kinds that extrapolate guidance: half of the batch is left out
HIGHEST_SIGMA = 4.5  # before this the composition is not settled, and the curves were not fitted
FIRST_ORDER = {"F": 0.0, "o": 2.0, "f": 2.0, "d": 2.0, "D": 2.0, "s": 2.0, "S": 2.0}  # dB closer than second order
GUIDANCE = 5.0  # that the curves were fitted with


@dataclass(frozen=True)
class Law:
    """The curves K of a kind of model: (k0, k1, k2) by letter, at guidance 5 and with a solver of second order."""

    curves: tuple[tuple[str, tuple[float, float, float]], ...]

    def weight(self, letter: str, sigma: float, guidance: float, order: int) -> float:
        """The mean squared error of a picture for a prediction that is wrong by 1 in this step."""
        k0, k1, k2 = dict(self.curves)[letter]
        x = math.log(sigma)
        power = 2.0 if letter in CONDITIONAL else 1.0
        reach = abs(guidance - 1) / (GUIDANCE - 1) if letter in CONDITIONAL else max(guidance, 1.0) / GUIDANCE
        gain = FIRST_ORDER[letter] if order == 1 else 0.0
        return math.exp(k0 + k1 * x + k2 * x * x) * max(reach, 0.1) ** power * 10 ** (-gain / 10)

    @staticmethod
    def wrong_by(x: float, a: float, b: float) -> float:
        """Interpolation's error term, without the curvature."""
        return (x - a) * (x - b) / 2

    def error(self, word: str, sigmas: tuple[float, ...], guidance: float, order: int) -> float:
        """The mean squared error that a schedule is expected to make."""
        full: list[float] = []
        total = 0.0
        for letter, sigma in zip(word, sigmas, strict=True):
            x = math.log(sigma)
            if letter == FULL:
                full = full if full and full[-1] == x else [*full[-1:], x]
            else:
                total += self.wrong_by(x, full[-2], full[-1]) ** 2 * self.weight(letter, sigma, guidance, order)
        return total


def curvature(sigma: float) -> float:
    """The squared error of the predicted picture, for a prediction that is wrong by 1, of the model of the curves."""
    return math.exp(-2.6) * sigma**1.85


UNET = Law(
    (
        ("s", (-8.5, 2.45, 0.31)),
        ("S", (-8.5, 2.55, 0.13)),
        ("d", (-9.65, 2.8, 0.39)),
        ("D", (-11.5, 2.6, 0.68)),
        ("o", (-7.3, 1.2, 0.4)),
        ("f", (-9.4, 2.3, 0.6)),
    )
)
TRANSFORMER = Law((("o", (-7.3, 1.2, 0.4)), ("f", (-9.4, 2.3, 0.6))))


def decibels(error: float) -> float:
    """Closeness of a picture, range 1, from its mean squared error."""
    return -10 * math.log10(error) if error > 0 else math.inf
