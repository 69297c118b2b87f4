"""bfloat16 on processors that claim AMX and lack it: a sentence instead of a process that is killed."""

import os
import sys
from pathlib import Path

import pytest
import torch

from todome.tools.devices import survives, torch_dtype

CPU = torch.device("cpu")
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
posix = pytest.mark.skipif(os.name == "nt", reason="signals are of POSIX")


@pytest.fixture
def killed(monkeypatch):
    """A processor on which the first product in bfloat16 is the last."""
    monkeypatch.setattr("todome.tools.devices.PRODUCT", KILLED)


@pytest.mark.thorough
def test_a_product_in_bfloat16_is_tried_in_a_process_of_its_own(monkeypatch):
    assert torch_dtype("bfloat16", CPU) is torch.bfloat16
    monkeypatch.setattr(sys, "executable", "/no/such/python")  # the answer is remembered
    assert torch_dtype("bfloat16", CPU) is torch.bfloat16


@posix
@pytest.mark.parametrize(("code", "answer"), [(KILLED, False), ("raise SystemExit(1)", True), ("", True)])
def test_only_an_illegal_instruction_counts(code, answer):
    assert survives(code) is answer


@posix
@pytest.mark.parametrize("words", [("generate", "a", "-o", "a.png"), ("bench", "sd15")])
def test_commands_say_what_to_set(killed, refused, small_sd15, words):
    said = refused(*words, "--dtype", "bfloat16", "--device", "cpu", "--size", "32x32")
    assert said.startswith("dtype='bfloat16' cannot be used. Allowed: float32 on this CPU")
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in said
    assert not Path("a.png").exists()


@posix
def test_other_devices_and_formats_are_not_asked_about(killed):
    assert torch_dtype("bfloat16", torch.device("cuda")) is torch.bfloat16
    assert torch_dtype("float32", CPU) is torch.float32
    assert torch_dtype("float16", CPU) is torch.float16
