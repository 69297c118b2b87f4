"""The command `todome`. The commands are in `todome.commands`, one file each."""

import os
import sys

EXTRAS = {  # of the packages that are not in the extra `demo`
    **dict.fromkeys(("jinja2", "matplotlib", "safetensors", "torchmetrics", "tqdm"), "eval"),
    "gradio": "app",
    "peft": "train",
}


def main() -> None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it misses a torchvision that nothing here uses
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        sys.exit(lacking(error))
    app(prog_name="todome")


def lacking(error: ModuleNotFoundError) -> str:
    """What to say where a package is not installed."""
    package = str(error.name).partition(".")[0]
    extra = EXTRAS.get(package, "demo")
    return f'Error: This needs {package}, which is missing. Install it: pip install "todome[{extra}]"'
