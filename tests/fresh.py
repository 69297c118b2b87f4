"""Fresh interpreters with torch alone loaded: each is a fork of one that waits, for importing torch takes seconds."""

import multiprocessing
import os
import tempfile
import warnings
from pathlib import Path
from subprocess import CompletedProcess

interpreters = multiprocessing.get_context("forkserver")
interpreters.set_forkserver_preload(["torch"])


def run_fresh(code: str, folder: Path = Path()) -> CompletedProcess[str]:
    """Runs a script, in which every warning is an error, in a folder."""
    with tempfile.TemporaryDirectory() as told:
        written = [os.path.join(told, name) for name in ("stdout", "stderr")]
        process = interpreters.Process(target=run_here, args=(code, folder, written))
        process.start()
        process.join()
        return CompletedProcess(code, process.exitcode or 0, *(Path(file).read_text() for file in written))


def run_here(code: str, folder: Path, written: list[str]) -> None:
    for descriptor, file in enumerate(written, start=1):
        os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY), descriptor)
    os.chdir(folder)
    warnings.simplefilter("error")
    exec(code, {"__name__": "__main__"})
