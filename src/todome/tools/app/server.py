"""Server of the page: on this machine alone by default, without gradio's tunnel, in a temporary folder."""

import errno
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
from starlette.middleware import Middleware

from ...errors import invalid_value
from ..devices import reachable_device
from ..generate import Settings, open_for
from .example import load_example
from .filter import KnownHosts, RequestFilter
from .form import Offer
from .limits import Limits, default_limits
from .models import Models, lora_files
from .page import AppContext, build
from .presets import first_form
from .store import PictureStore
from .theme import theme
from .visitors import Visitors
from .worker import DrawWorker

HERE = Path(__file__).parent
CLOSE_SECONDS = 1.0  # how long connections are given to end when the page is closed
SCRIPTS = ("page.js", "upload.js")
PREFIX = "todome-app-"  # of the temporary folder
open_folders: set[Path] = set()  # of the pages that this process serves


@dataclass(frozen=True)
class Address:
    """Where to listen, the name and password to ask for, and other names by which visitors reach the page."""

    host: str = "127.0.0.1"
    port: int = 7860
    auth: tuple[str, str] | None = None
    names: tuple[str, ...] = ()


class ServedPage(NamedTuple):
    """Page that is served: its address, its worker, and the folder of its pictures."""

    url: str
    worker: DrawWorker
    root: Path


@contextmanager
def serve_page(
    base: Settings,
    address: Address,
    limits: Mapping[str, int],
    pipe: Any = None,
    models: Sequence[str] = (),
    loras: Path | None = None,
) -> Iterator[ServedPage]:
    """Serves the page until the block ends.

    Args:
        base: Settings with the model, the device and the dtype.
        address: Where to listen.
        limits: Fields of Limits that differ from the defaults of the device.
        pipe: The pipeline, where it is open already.
        models: Further models that visitors may choose.
        loras: Folder with LoRA files that visitors may choose.
    """
    check_free(address)
    offer = Offer(tuple(dict.fromkeys([base.model, *models])), lora_files(loras))
    within = replace(default_limits(reachable_device(base.device)), **limits)
    pipe = open_for(base) if pipe is None else pipe
    with private_folder() as root:
        first = first_form(base.model, pipe, within).order(within, base, offer).alone[0]
        worker = DrawWorker(Models(base, pipe, loras), within.waiting, within.per_address, first)
        store, visitors = PictureStore(root, within.disk), Visitors(within.sessions)
        page = build(AppContext(worker, store, visitors, within, base, offer, load_example(root)))
        try:
            launch(page, address, root, within)
            yield ServedPage(str(page.local_url), worker, root)
        finally:
            worker.close()
            close(page)


def close(page: gr.Blocks) -> None:
    """Ends the server together with the streams that visitors hold open: by itself gradio waits for these."""
    server = getattr(page, "server", None)
    page.server = None  # pyright: ignore[reportAttributeAccessIssue]
    page.close(verbose=False)
    if server is None:
        return
    server.should_exit = True
    patience = time.monotonic() + CLOSE_SECONDS
    while server.thread.is_alive() and time.monotonic() < patience:
        with suppress(RuntimeError):  # the loop of the server has just ended
            for connection in list(server.server_state.connections):
                connection.loop.call_soon_threadsafe(connection.transport.abort)
        server.thread.join(0.05)


def check_free(address: Address) -> None:
    """Refuses an address that cannot be used: before a model is opened, which takes its time."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.host, address.port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                allowed = f"a port that is free on {address.host}, and that you may use"
                raise invalid_value("port", address.port, allowed, "Choose another one with --port", OSError) from error
            raise invalid_value(
                "host", address.host, "an address of this machine", "127.0.0.1 is for this machine alone", OSError
            ) from error


@contextmanager
def private_folder() -> Iterator[Path]:
    """Folder for the pictures, which is removed afterwards. By itself gradio shares one with every other app here."""
    before = os.environ.get("GRADIO_TEMP_DIR")
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        root = Path(folder).resolve()
        open_folders.add(root)
        os.environ["GRADIO_TEMP_DIR"] = str(root)
        try:
            yield root
        finally:
            remove_folder(root)
            open_folders.remove(root)
            os.environ.pop("GRADIO_TEMP_DIR")
            if before is not None:
                os.environ["GRADIO_TEMP_DIR"] = before


def remove_folder(root: Path) -> None:
    """Removes a folder in which a thread may be writing: under another name no file can be added to it."""
    renamed = root.with_name(f"{root.name}-closed")
    with suppress(OSError):
        root.rename(renamed)
    shutil.rmtree(renamed, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)  # where it could not be renamed


def remove_open_folders() -> None:
    """Removes the pictures of all visitors, where the process is about to be ended."""
    for root in list(open_folders):
        remove_folder(root)


def launch(page: gr.Blocks, address: Address, root: Path, limits: Limits) -> None:
    """Starts gradio with every option that it would otherwise take from the environment or decide by itself."""
    hosts = KnownHosts.at(address.host, address.names)
    page.queue(max_size=8 * (limits.waiting + 4), api_open=False)
    page.launch(
        server_name=address.host,
        server_port=address.port,
        auth=address.auth,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        run_history=False,
        pwa=False,
        max_file_size=1,
        footer_links=[],
        favicon_path=HERE / "favicon.svg",
        theme=theme(),
        css_paths=[HERE.parent / "look.css", HERE / "style.css"],
        head="".join(f"<script>{(HERE / name).read_text(encoding='utf-8')}</script>" for name in SCRIPTS),
        app_kwargs={"middleware": [Middleware(RequestFilter, root=root, hosts=hosts, upload=limits.upload)]},
    )
