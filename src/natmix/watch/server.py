"""A server for one page and its numbers, on this machine alone unless asked otherwise."""

import hmac
import ipaddress
import json
import secrets
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from natmix.watch.folder import WatchedFolder

_PAGE = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "charts.js": ("charts.js", "text/javascript; charset=utf-8"),
}
"""What is served below the token beside the numbers; nothing else is, whatever a path says."""
DATA = "data"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_SECONDS = 20
"""For a request to arrive."""


class WatchServer(ThreadingHTTPServer):
    """Serves a `WatchedFolder`; only to whom knows the token, which is a part of every address.

    Args:
        folder: what is shown.
        host: the address to listen at.
        port: 0 for any that is free.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: WatchedFolder, host: str = "127.0.0.1", port: int = 0) -> None:
        self.folder, self.host = folder, host
        self.token = secrets.token_urlsafe(24)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without asking the network for this machine's name, as the standard library does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.host, self.server_address[1]

    @property
    def url(self) -> str:
        """What to open in the browser."""
        host = self.host if self.host not in ("0.0.0.0", "::") else socket.gethostname()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/{self.token}/"

    def answers_to(self, host_header: str | None) -> bool:
        """Whether a request is addressed to this server by a name that nobody else can point here.

        A page of another site may have its name resolved to this machine (DNS rebinding); it cannot do so
        with an address or with names of this machine. The port may be another one, that of a tunnel.
        """
        name = _without_port(host_header or "")
        if is_loopback(self.host):
            return is_loopback(name)
        own = {self.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
        return name in own or is_loopback(name) or _is_address(name)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error."""


def is_loopback(host: str) -> bool:
    """Whether this is an address or the name of this machine that no other one reaches."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _without_port(header: str) -> str:
    """The name or address of a Host header, in lower case; empty if it is none."""
    header = header.strip().lower()
    if header.startswith("["):
        address, bracket, port = header[1:].partition("]")
        return address if bracket and (not port or _is_port(port)) else ""
    name, colon, port = header.partition(":")
    return name if not colon or _is_port(":" + port) else ""


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and text[1:].isdigit()


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the page, its scripts and its numbers."""

    server: WatchServer
    timeout = _SECONDS
    server_version, sys_version = "natmix", ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if not self.server.answers_to(self.headers.get("Host")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        name = self._allowed()
        if name == DATA:
            content, kind = (
                json.dumps(self.server.folder.data(), allow_nan=False).encode(),
                "application/json",
            )
        elif name in _PAGE:
            file, kind = _PAGE[name]
            content = resources.files("natmix.watch").joinpath("page", file).read_bytes()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self._send(HTTPStatus.OK, kind, content)

    def _allowed(self) -> str | None:
        """What is asked for below the token; None if the token is not the right one."""
        token, slash, name = self.path.removeprefix("/").partition("/")
        given, right = token.encode("utf-8", "surrogateescape"), self.server.token.encode()
        return name if hmac.compare_digest(given, right) and slash else None

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A line without anything of the request in it."""
        self.close_connection = True
        self._send(code, "text/plain; charset=utf-8", f"{HTTPStatus(code).phrase}\n".encode())

    def _send(self, code: int, kind: str, content: bytes) -> None:
        self.send_response(code)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address has the token in it."""


def serving(server: WatchServer) -> threading.Thread:
    """Serve in a thread of its own until ``server.shutdown()``."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()
    return thread
