"""A process with one page, on which attention is most of the time by a clock that counts instead of measuring."""

import functools
import sys
from pathlib import Path

import torch
from small_page import LIMITS, free_port

sys.path.insert(0, str(Path(__file__).parents[1]))
from attention_clock import AttentionClock

from todome.tools.app import tuning
from todome.tools.app.server import Address, serve_page
from todome.tools.generate import Settings
from todome.tools.pipelines import open_pipeline
from todome.tools.timing import Timing
from todome.tools.tuning import layer_times, sensitivity
from todome.tools.tuning.options import Options

torch.set_num_threads(1)
pipe = open_pipeline(device="cpu")
timing = Timing(seconds=0, rounds=1, clock=AttentionClock(pipe.unet, 1e5))  # rounds are all the same
tuning.carry_out = functools.partial(tuning.carry_out, options=Options(timing=timing))
layer_times.FACTORS = sensitivity.FACTORS = (2,)
tuning.HELD_OUT = 2
with serve_page(Settings(device="cpu"), Address(port=free_port()), LIMITS, pipe) as page:
    print(page.url, flush=True)
    sys.stdin.read()
