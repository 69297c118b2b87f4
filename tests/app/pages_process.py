"""A process with two pages: an open one with small limits, and one for everybody with a password."""

import functools
import os
import sys
from pathlib import Path

os.environ |= {  # what would open the page to the world, and does nothing
    "GRADIO_ALLOWED_PATHS": "/",
    "GRADIO_MCP_SERVER": "true",
    "GRADIO_SERVER_NAME": "0.0.0.0",
    "GRADIO_SHARE": "true",
}

sys.path.insert(0, str(Path(__file__).parents[1]))  # beside which the clock is

import torch
from asking import OFFER, free_port
from attention_clock import AttentionClock

from todome.tools.app import tuning
from todome.tools.app.server import Address, serve_page
from todome.tools.pipelines import open_pipeline
from todome.tools.timing import Timing
from todome.tools.tuning import layer_times, sensitivity
from todome.tools.tuning.options import Options

torch.set_num_threads(1)
pipe = open_pipeline(device="cpu")
# Tuning by a clock that counts, on which attention is most of the time; in few steps, which are all the same.
timing = Timing(seconds=0, rounds=1, clock=AttentionClock(pipe.unet, 1e5))
tuning.carry_out = functools.partial(tuning.carry_out, options=Options(timing=timing))
layer_times.FACTORS = sensitivity.FACTORS = (2,)
tuning.HELD_OUT = 2
everybody = Address("0.0.0.0", free_port(), ("ada", "lovelace"), ("flowers.example",))
with serve_page(pipe, OFFER, everybody) as locked, serve_page(pipe, OFFER, Address(port=free_port())) as page:
    print(page, locked, flush=True)  # gradio knows the folder of the last one alone
    sys.stdin.read()
os._exit(0)  # a step may still be computed in a thread
