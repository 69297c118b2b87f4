"""`todome app`: the same picture with full attention and with less of it, side by side on a page."""

import os
import sys
import threading
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..pipelines import EMBEDDED
from .options import DEVICE, DTYPE, MODEL, Loras, Vae, by_default, model_option, without_none

network_option = partial(typer.Option, rich_help_panel="Who can reach it")
limit_option = partial(typer.Option, rich_help_panel="What visitors may ask for")

PIPELINE = MODEL + " Name several, and visitors may choose; the first is opened." + by_default(f"{EMBEDDED}, embedded")
LORAS = "Folder with LoRA files (.safetensors) that visitors may choose."
HOST = "The address to listen on; 0.0.0.0 lets everybody in who can reach this machine."
HOSTNAME = "Another name by which visitors reach it, such as that of a proxy; unknown names are refused."
AUTH = "Ask visitors for this name and password. Safer in TODOME_APP_AUTH: others here can read command lines."
SIDE = "The most pixels on the longer side." + by_default("512 on a CPU, else 2048")
STEPS = "The most steps of one picture." + by_default("50 on a CPU, else 100")
DISK = "The most megabytes of pictures to keep, of all visitors." + by_default(500)
MINUTES = "The most minutes that one tuning takes." + by_default(10)
PROMPT = "The most characters of a prompt." + by_default(500)
UNGUARDED = (
    "Note: Everybody who can reach this machine can use the page. TODOME_APP_AUTH=USER:PASSWORD asks for a password."
)


def serve(
    models: Annotated[list[str] | None, model_option("--model", metavar="MODEL", help=PIPELINE)] = None,
    lora: Loras = None,
    vae: Vae = None,
    lora_folder: Annotated[Path | None, model_option(metavar="FOLDER", help=LORAS)] = None,
    device: Annotated[str, model_option(metavar="NAME", help=DEVICE)] = "auto",
    dtype: Annotated[str, model_option(metavar="NAME", help=DTYPE)] = "auto",
    host: Annotated[str, network_option(metavar="ADDRESS", help=HOST)] = "127.0.0.1",
    port: Annotated[int, network_option(min=1, max=65535, help="The port to listen on.")] = 7860,
    auth: Annotated[
        str | None, network_option(metavar="USER:PASSWORD", envvar="TODOME_APP_AUTH", help=AUTH, show_default=False)
    ] = None,
    hostname: Annotated[list[str] | None, network_option(metavar="NAME", help=HOSTNAME, show_default=False)] = None,
    open_it: Annotated[bool, network_option("--open", help="Open it in the browser.")] = False,
    max_size: Annotated[int | None, limit_option(metavar="PX", help=SIDE)] = None,
    max_steps: Annotated[int | None, limit_option(metavar="N", help=STEPS)] = None,
    max_prompt: Annotated[int | None, limit_option(metavar="N", help=PROMPT)] = None,
    max_minutes: Annotated[int | None, limit_option(metavar="N", help=MINUTES)] = None,
    max_disk: Annotated[int | None, limit_option(metavar="MB", min=1, max=10**9, help=DISK)] = None,
) -> None:
    """Opens a page on which to draw with full attention (dense) and with less, and to compare the two.

    Only this machine can reach it unless --host says otherwise. Ctrl+C ends it.

    [dim]todome app --model stable-diffusion-v1-5/stable-diffusion-v1-5[/dim]
    """
    from ..app.filter import LOCAL
    from ..app.server import Address, remove_open_folders, serve_page
    from ..app.signals import interrupt_on_signals
    from ..generate import Settings
    from ..progress import doing

    model, *others = models or [EMBEDDED]
    address = Address(host, port, credentials(auth), tuple(hostname or ()))
    settings = Settings(model=model, device=device, dtype=dtype, loras=tuple(lora or ()), vae=vae)
    asked = {"side": max_size, "steps": max_steps, "prompt": max_prompt, "minutes": max_minutes}
    limits = without_none(**asked, disk=max_disk and max_disk * 10**6)
    with interrupt_on_signals(remove_open_folders):
        with ExitStack() as opened, suppress(KeyboardInterrupt):
            with doing(f"Loading {model}"):
                page = serve_page(settings, address, limits, models=others, loras=lora_folder)
                served = opened.enter_context(page)
            typer.echo(f"{model} is at {served.url}\nCtrl+C ends it.")
            if host not in LOCAL and auth is None:
                typer.echo(UNGUARDED, err=True)
            if open_it:
                typer.launch(served.url)
            threading.Event().wait()
        remove_open_folders()
        typer.echo("Closed.")
        sys.stdout.flush()
        os._exit(0)  # Python would wait for its threads, and one may be in the middle of a long step


def credentials(auth: str | None) -> tuple[str, str] | None:
    if auth is None:
        return None
    user, _, password = auth.partition(":")
    if not (user and password):
        raise typer.BadParameter("It is not USER:PASSWORD.", param_hint="--auth")
    return user, password
