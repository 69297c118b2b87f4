"""Pictures that do not fit into the memory are refused before a model is opened, with an estimate, unless by force."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from todome.tools.memory import bytes_needed, model_facts, own_size
from todome.tools.pipelines import find_model

CPU = torch.device("cpu")
DRAW = """
import resource, torch
from todome import Downsample
from todome.tools.generate import Settings, make_picture
torch.set_num_threads(1)
make_picture(Settings("a rose", size=({side}, {side}), steps=1, guidance=3.0, device="cpu", reduction=Downsample(4)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_a_picture_that_cannot_fit(refused, run, monkeypatch):
    """Nothing is opened, until it is forced."""
    opened: list[Any] = []
    free = SimpleNamespace(available=2_000_000_000)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    monkeypatch.setattr("todome.tools.pipelines.open_pipeline", lambda *words, **_: opened.append(words) or 1 / 0)
    asked = ("generate", "a", "--size", "2048x4096", "-o", "a.png", "--device", "cpu")
    assert refused(*asked) == (
        "2048x4096 pixels need about 8.1 GB of memory, and 2.0 GB are free on cpu. Lower --size, use --dtype float16, "
        "or try it all the same with --force."
    )
    assert not opened
    assert isinstance(run(*asked, "--force").exception, ZeroDivisionError)
    assert opened


def test_what_fits_is_drawn(run, opened_once, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=700_000_000))
    assert run("generate", "a", "--size", 64, "--steps", 1, "-o", "a.png", "--device", "cpu").exit_code == 0
    assert Path("a.png").is_file()


def test_half_the_bytes_of_a_number_are_half_the_memory():
    facts = model_facts(find_model("todome-flowers"))
    assert facts is not None
    assert own_size(facts) == (256, 256)
    whole, half = (
        bytes_needed(facts, (2048, 2048), torch.device("meta"), kind) for kind in (torch.float32, torch.float16)
    )
    assert whole == 2 * half


def test_the_estimate_is_near_and_not_too_high():
    """Against the peak of a process that draws: what is refused could really not be drawn."""
    facts = model_facts(find_model("todome-flowers"))
    assert facts is not None
    done = subprocess.run([sys.executable, "-c", DRAW.format(side=384)], capture_output=True, text=True, check=True)
    peak = int(done.stdout.split()[-1])
    assert 0.3 * peak < bytes_needed(facts, (384, 384), CPU, torch.float32) < peak
