"""What each kind of step costs: the time of a call, as a share of a full one.

Measured on an H200 in half precision, as replayed graphs, batch 2 for both halves of guidance and 1 for one: the shapes
of SD 1.5 and of SDXL, whose finest stage has no attention. Other models are taken for the one that they are like.
"""

import math
from collections.abc import Mapping

KINDS = "fDdSs"
NOTHING = 0.005  # of a full call: to extrapolate the output costs a few kernels
SHARES: Mapping[str, Mapping[int, tuple[float, ...]]] = {  # by the side of the latents, in the order of KINDS
    "attention": {
        64: (0.715, 0.703, 0.463, 0.441, 0.284),
        96: (0.632, 0.758, 0.455, 0.512, 0.306),
        128: (0.567, 0.836, 0.456, 0.615, 0.329),
        192: (0.546, 0.885, 0.468, 0.715, 0.371),
        256: (0.519, 0.919, 0.479, 0.773, 0.400),
    },
    "convolutions": {
        64: (0.782, 0.338, 0.235, 0.113, 0.080),
        96: (0.661, 0.389, 0.242, 0.143, 0.091),
        128: (0.617, 0.424, 0.249, 0.160, 0.094),
        192: (0.566, 0.443, 0.255, 0.151, 0.097),
        256: (0.530, 0.463, 0.261, 0.136, 0.089),
    },
}
TRANSFORMER = {"f": 0.55}


def unet_shares(finest: str, size: tuple[int, ...], batch: int) -> dict[str, float]:
    """The cost of each kind for a UNet whose finest stage has "attention" or "convolutions" alone."""
    table = SHARES[finest]
    side = math.sqrt(math.prod(size) * max(1, batch))  # a batch fills a GPU as larger pictures do
    found = dict(zip(KINDS, between(table, side), strict=True)) | {"o": NOTHING}
    return found | {"T": (found["D"] + 1) / 2, "t": (found["d"] + found["f"]) / 2}


def between(table: Mapping[int, tuple[float, ...]], side: float) -> list[float]:
    """A row of a table for a side between two of its own, or beyond the last."""
    sides = sorted(table)
    side = min(max(side, sides[0]), sides[-1])
    low = max(one for one in sides if one <= side)
    high = min(one for one in sides if one >= side)
    share = 0.0 if low == high else math.log(side / low) / math.log(high / low)
    return [a + (b - a) * share for a, b in zip(table[low], table[high], strict=True)]
