"""ASGI middleware that lets through what the page itself asks for: known hosts, an allow-list of paths, small bodies.

gradio can do far more than this page needs: uploads, proxies, the files of others.
"""

import ipaddress
import math
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import PlainTextResponse

from .throttle import LoginThrottle
from .visitors import new_cookie, visitor_in

MAX_BODY = 2**16  # bytes: prompts and numbers
EVENTS = "/gradio_api/queue/join"  # where a picture to start from may come
PATHS = {
    "/",
    "/config",
    "/theme.css",
    "/favicon.ico",
    "/manifest.json",
    "/login",
    "/login/",
    "/logout",
    "/app_id",
    "/user",
    "/gradio_api/queue/join",
    "/gradio_api/queue/data",
    "/gradio_api/startup-events",
    "/gradio_api/app_id",
}
PREFIXES = ("/assets/", "/static/", "/gradio_api/heartbeat/")
FILE = "/gradio_api/file="
HEADERS = {
    b"content-security-policy": (
        b"default-src 'self'; img-src 'self' data: blob:; font-src 'self' data:; style-src 'self' 'unsafe-inline'; "
        b"script-src 'self' 'unsafe-inline' 'unsafe-eval'; object-src 'none'; frame-ancestors 'none'; base-uri 'self'"
    ),
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}
LOCAL = ("127.0.0.1", "localhost", "::1")
EVERY_ADDRESS = ("0.0.0.0", "::")
UNKNOWN_HOST = "The page is not served under this name. --hostname NAME allows another one when it is started."


@dataclass(frozen=True)
class KnownHosts:
    """Names that requests may have in their Host header.

    Any site can let its own name point to this machine and then read the page as if it were its own (DNS rebinding);
    the header has the name it did that with. No site can do so with a number, so numbers are safe.
    """

    names: frozenset[str]
    numbers: bool = False  # any IP address

    @classmethod
    def at(cls, host: str, more: tuple[str, ...] = ()) -> "KnownHosts":
        """Those of a page that listens at this address: local names, the address and, beyond, the machine's name."""
        names = {*LOCAL, host, *more}
        if host not in LOCAL:
            machine = socket.gethostname()
            names |= {machine, f"{machine}.local"}
        return cls(frozenset(name.lower() for name in names), host in EVERY_ADDRESS)

    def include(self, header: str) -> bool:
        """Whether a Host header, with or without a port, has a known name."""
        name = header.lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        return name in self.names or (self.numbers and is_number(name))


def is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def visitor_address(host: str) -> str:
    """Address of a visitor for counting. With IPv6 it is the network: everybody has 2**64 addresses in theirs."""
    if ":" not in host or not is_number(host):
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))


class RequestFilter:
    """Middleware around gradio's app.

    Args:
        root: Folder of the pictures, the only files that can be had.
        hosts: Names under which the page answers.
        upload: Bytes of a picture that a visitor may send.
    """

    def __init__(self, app: Any, root: Path, hosts: KnownHosts, upload: int) -> None:
        self.app, self.root, self.hosts = app, root, hosts
        self.events_body = MAX_BODY + 2 * upload * 4 // 3  # picture and mask, in base64
        self.logins = LoginThrottle()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        login = scope["method"] == "POST" and scope["path"].startswith("/login")
        address = visitor_address((scope.get("client") or ("",))[0])
        refusal = self.refusal(scope) or (self.login_refusal(address) if login else None)
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        async def send_more(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *HEADERS.items()]
                if (
                    scope["path"] == "/"
                    and visitor_in(dict(scope["headers"]).get(b"cookie", b"").decode("latin-1")) is None
                ):
                    headers.append((b"set-cookie", new_cookie()))
                message = {**message, "headers": headers}
                if login and message["status"] < 400:
                    self.logins.forgive(address)
            await send(message)

        await self.app(scope, receive, send_more)

    def refusal(self, scope: Any) -> PlainTextResponse | None:
        headers, path = dict(scope["headers"]), scope["path"]
        if not self.hosts.include(headers.get(b"host", b"").decode("latin-1")):
            return PlainTextResponse(UNKNOWN_HOST, 400)
        if not (path in PATHS or path.startswith(PREFIXES) or (path.startswith(FILE) and self.is_picture(path))):
            return PlainTextResponse("There is nothing here.", 404)
        length = headers.get(b"content-length", b"0")
        if (
            b"transfer-encoding" in headers
            or not length.isdigit()
            or int(length) > (self.events_body if path == EVENTS else MAX_BODY)
        ):
            return PlainTextResponse("This is more than the page would send.", 413)
        return None

    def is_picture(self, path: str) -> bool:
        file = Path(path.removeprefix(FILE)).resolve()
        return file.is_relative_to(self.root) and file.is_file()

    def login_refusal(self, address: str) -> PlainTextResponse | None:
        seconds = math.ceil(self.logins.try_once(address))
        if not seconds:
            return None
        text = f"There were too many wrong passwords. Try again in {seconds} seconds."
        return PlainTextResponse(text, 429, {"Retry-After": str(seconds)})
