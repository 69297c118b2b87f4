"""A process with two pages: one behind a password, and one that the command itself opens."""

import sys

import torch
from small_page import LIMITS, free_port

from todome.tools.app.server import Address, serving
from todome.tools.cli import main
from todome.tools.generate import Settings

torch.set_num_threads(1)
with serving(Settings(device="cpu"), Address(port=free_port(), auth=("ada", "lovelace")), LIMITS) as locked:
    print(locked.url, flush=True)
    sys.argv = ["todome", "app", "--device=cpu", f"--port={free_port()}"]
    sys.argv += [
        f"--max-{name}={LIMITS[field]}" for name, field in (("size", "side"), ("steps", "steps"), ("prompt", "prompt"))
    ]
    main()
