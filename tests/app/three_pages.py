"""A process with three pages: one for everybody with a password, one with small limits, and one of the command."""

import sys

import torch
from small_page import LIMITS, free_port

from todome.tools.app.server import Address, serve_page
from todome.tools.cli import main
from todome.tools.generate import Settings

torch.set_num_threads(1)
base = Settings(device="cpu")
everybody = Address("0.0.0.0", free_port(), ("ada", "lovelace"), ("flowers.example",))
with serve_page(base, everybody, LIMITS) as locked, serve_page(base, Address(port=free_port()), LIMITS) as small:
    print(locked.url, small.url, flush=True)
    sys.argv = ["todome", "app", "--device=cpu", f"--port={free_port()}"]
    sys.argv += [
        f"--max-{name}={LIMITS[field]}" for name, field in (("size", "side"), ("steps", "steps"), ("prompt", "prompt"))
    ]
    main()
