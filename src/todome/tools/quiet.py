"""diffusers and transformers without their notes and progress bars."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_loading() -> Iterator[Any]:
    """diffusers, silent about every part of a pipeline that it loads; afterwards as talkative as it was."""
    import diffusers
    from diffusers.utils import logging as notes
    from transformers.utils import logging as bars

    verbosity = notes.get_verbosity()
    loud = [library for library in (notes, bars) if library.is_progress_bar_enabled()]
    notes.set_verbosity_error()
    for library in loud:
        library.disable_progress_bar()
    try:
        yield diffusers
    finally:
        notes.set_verbosity(verbosity)
        for library in loud:
            library.enable_progress_bar()
