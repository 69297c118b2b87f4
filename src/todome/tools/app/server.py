"""Server of the page: on this machine alone by default, without gradio's tunnel, in a temporary folder."""

import ipaddress
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gradio as gr
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from ...errors import invalid_value
from .drawing import Worker
from .form import Offer
from .limits import UPLOAD
from .page import build
from .runs import Runs

HERE = Path(__file__).parent
SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
PAPER, NIGHT = "#fbfaf7", "#151614"  # as in look.css, which has the other colours
MONO = ("ui-monospace", "SFMono-Regular", "Consolas", "Liberation Mono", "monospace")
CLOSE_SECONDS = 2.0  # how long connections are given to end
PREFIX = "todome-app-"  # of the temporary folder
WAITING = 8  # runs that may wait while another one is drawn
MAX_BODY = 2**16 + 2 * UPLOAD * 4 // 3  # bytes: prompts and numbers; a picture and its mask in base64
LOCAL = ("127.0.0.1", "localhost", "::1")
UNKNOWN_HOST = "The page is not served under this name. --hostname NAME allows another one when it is started."
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; font-src 'self' data:; style-src 'self' 'unsafe-inline'; "
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'; object-src 'none'; frame-ancestors 'none'; base-uri 'self'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True)
class Address:
    """Where to listen, the name and password to ask for, and other names by which the page is reached."""

    host: str = "127.0.0.1"
    port: int = 7860
    auth: tuple[str, str] | None = None
    names: tuple[str, ...] = ()

    def is_known(self, host: str) -> bool:
        """Whether a Host header, with or without a port, has a name of this page.

        Any site can let its own name point to this machine and then read the page as if it were its own (DNS
        rebinding); the header has the name it did that with. No site can do so with a number, so numbers are safe.
        """
        with suppress(ValueError):
            name, machine = urlsplit(f"//{host}").hostname or "", socket.gethostname()
            known = ("localhost", self.host, machine, f"{machine}.local", *self.names)
            return name in map(str.lower, known) or bool(ipaddress.ip_address(name))
        return False


@contextmanager
def serve_page(pipe: Any, offer: Offer, address: Address) -> Iterator[str]:
    """Serves the page until the block ends. Yields where it is.

    Args:
        pipe: The pipeline to draw with.
        offer: What can be asked for.
        address: Where to listen: checked by `check_free`.
    """
    with private_folder() as root:
        worker = Worker(pipe)
        page = build(worker, Runs(root), offer)
        try:
            launch(page, address, root)
            yield str(page.local_url)
        finally:
            for session in list(worker.jobs):
                worker.stop(session)
            close(page)


def close(page: gr.Blocks) -> None:
    """Ends the server together with the connections that tabs hold open, and open anew: gradio would wait for them."""
    server: Any = page.server
    page.server = None  # pyright: ignore[reportAttributeAccessIssue]
    page.close(verbose=False)
    server.should_exit = True
    patience = time.monotonic() + CLOSE_SECONDS
    while server.thread.is_alive() and time.monotonic() < patience:
        for connection in list(server.server_state.connections):
            with suppress(RuntimeError):  # the loop of the server has just ended
                connection.loop.call_soon_threadsafe(connection.transport.abort)
        server.thread.join(0.05)


def check_free(address: Address) -> None:
    """Refuses an address that cannot be used."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.host, address.port))
        except OSError as error:
            allowed = "an address of this machine, and a port that is free there and that you may use"
            remedy = "Choose another one with --port; the address 127.0.0.1 is for this machine alone"
            raise invalid_value("host, port", (address.host, address.port), allowed, remedy, OSError) from error


@contextmanager
def private_folder() -> Iterator[Path]:
    """Folder for the pictures, which is removed afterwards. By itself gradio shares one with every other app here."""
    root = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    os.environ["GRADIO_TEMP_DIR"] = str(root)
    try:
        yield root
    finally:
        closed = root.rename(f"{root}-closed")  # a thread may be writing: here it adds no file any more
        shutil.rmtree(closed, ignore_errors=True)


def launch(page: gr.Blocks, address: Address, root: Path) -> None:
    """Starts gradio with every option that it would otherwise take from the environment or decide by itself."""
    script = (HERE / "upload.js").read_text(encoding="utf-8")
    theme = gr.themes.Base(neutral_hue="stone", font=SANS, font_mono=MONO)  # gradio's own fonts are fetched
    page.queue(max_size=WAITING, api_open=False)
    page.launch(
        server_name=address.host,
        server_port=address.port,
        auth=address.auth,
        allowed_paths=[str(root)],
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        run_history=False,
        pwa=False,
        max_file_size=1,  # of gradio's own uploads, which the page does without
        footer_links=[],
        favicon_path=HERE / "favicon.svg",
        theme=theme.set(body_background_fill=PAPER, body_background_fill_dark=NIGHT),
        css_paths=[HERE.parent / "look.css", HERE / "style.css"],
        head=f"<script>{script}</script>",
        app_kwargs={"middleware": [Middleware(RequestFilter, address=address)]},
    )


class RequestFilter:
    """ASGI middleware that refuses what other sites make a browser send, and bodies that are too large.

    starlette's TrustedHostMiddleware knows names alone: a page that listens on every address has any number of these.
    """

    def __init__(self, app: Any, address: Address) -> None:
        self.app, self.address = app, address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        refusal = self.refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        if scope["type"] != "http" or refusal is not None:
            await (refusal or PlainTextResponse("There is nothing here.", 404))(scope, receive, send)
            return

        async def send_more(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        await self.app(scope, receive, send_more)

    def refusal(self, method: str, headers: Headers) -> PlainTextResponse | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.address.is_known(host):
            return PlainTextResponse(UNKNOWN_HOST, 400)
        if method not in ("GET", "HEAD") and origin is not None and not self.is_own(origin, host):
            return PlainTextResponse("Another site may not send this.", 403)
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdigit() or int(length) > MAX_BODY:
            return PlainTextResponse("This is more than the page would send.", 413)
        return None

    def is_own(self, origin: str, host: str) -> bool:
        """Whether an Origin header is that of the page, also where a proxy in front of it speaks HTTPS."""
        with suppress(ValueError):
            own = urlsplit(origin)
            return own.netloc == host or (own.hostname or "") in map(str.lower, self.address.names)
        return False
