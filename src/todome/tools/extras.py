"""Packages that come with extras of todome: what to say where one is missing."""

EXTRAS = {  # of the packages that are not in the extra `cli`
    **dict.fromkeys(("jinja2", "matplotlib", "safetensors", "torchmetrics", "tqdm"), "eval"),
    "gradio": "app",
    "pyarrow": "parquet",
    "ray": "ray",
}


def missing_package(error: ModuleNotFoundError) -> str:
    """Sentence for a package that is not installed."""
    package = str(error.name).partition(".")[0]
    extra = EXTRAS.get(package, "cli")
    return f'Error: This needs {package}, which is missing. Install it: pip install "todome[{extra}]"'
