"""`todome app`: the same picture with full attention and with less of it, side by side on a page."""

import os
import sys
import threading
from contextlib import ExitStack, suppress
from functools import partial
from typing import Annotated

import typer

from ..pipelines import EMBEDDED
from .options import DEVICE, DTYPE, MODEL, Loras, Vae, by_default, model_option

network_option = partial(typer.Option, rich_help_panel="Who can reach it")
limit_option = partial(typer.Option, rich_help_panel="What may be asked for")

PIPELINE = MODEL + by_default(f"{EMBEDDED}, embedded")
HOST = "The address to listen on; 0.0.0.0 lets everybody in who can reach this machine."
HOSTNAME = "Another name by which the page is reached, such as that of a proxy; unknown names are refused."
AUTH = "Ask for this name and password. Safer in TODOME_APP_AUTH: others here can read command lines."
SIDE = "The most pixels on the longer side." + by_default("512 on a CPU, else 2048")
STEPS = "The most steps of one picture." + by_default("50 on a CPU, else 100")
REACHABLE = (
    "Note: Everybody who can reach {host} can draw with this machine, and sees and deletes all pictures of the page. "
    "It is made for one person, or for a few who trust each other: for others, put a proxy in front of it that knows "
    "them. {password}"
)
PASSWORD = "The password goes over the network as it is: use HTTPS there."
NO_PASSWORD = "TODOME_APP_AUTH=USER:PASSWORD asks for a password."


def serve(
    model: Annotated[str, model_option("--model", metavar="MODEL", help=PIPELINE, show_default=False)] = EMBEDDED,
    lora: Loras = None,
    vae: Vae = None,
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
) -> None:
    """Opens a page on which to draw with full attention (dense) and with less, and to compare the two.

    Only this machine can reach it unless --host says otherwise. Ctrl+C ends it.

    [dim]todome app --model stable-diffusion-v1-5/stable-diffusion-v1-5[/dim]
    """
    from ..app.form import Offer
    from ..app.limits import LARGEST, MOST_STEPS, SMALLEST, check_whole, own_limits
    from ..app.server import LOCAL, Address, check_free, serve_page
    from ..devices import reachable_device
    from ..generate import Settings, open_for
    from ..progress import doing

    address = Address(host, port, credentials(auth), tuple(hostname or ()))
    settings = Settings(model=model, device=device, dtype=dtype, loras=tuple(lora or ()), vae=vae)
    side, steps = own_limits(reachable_device(device))
    side = check_whole("max-size", side if max_size is None else max_size, SMALLEST, LARGEST)
    steps = check_whole("max-steps", steps if max_steps is None else max_steps, 1, MOST_STEPS)
    check_free(address)  # before a model is opened, which takes its time
    with suppress(KeyboardInterrupt), ExitStack() as opened:
        with doing(f"Loading {model}"):
            url = opened.enter_context(serve_page(open_for(settings), Offer(settings, side, steps), address))
        typer.echo(f"{model} is at {url}\nCtrl+C ends it.")
        if host not in LOCAL:
            typer.echo(REACHABLE.format(host=host, password=PASSWORD if auth else NO_PASSWORD), err=True)
        if open_it:
            typer.launch(url)
        threading.Event().wait()
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
