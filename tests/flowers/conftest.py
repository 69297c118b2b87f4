"""The way to the code that trained the embedded model."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "flowers" / "train"))  # last, for its modules have common names
