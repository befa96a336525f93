"""A real HTTP server that receives webhooks, and checks their signatures by its own code."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.body)
        return message

    @property
    def seq(self) -> int:
        return int(self.message["data"]["seq"])


def hmac_sha256(key: bytes, text: bytes) -> bytes:
    """RFC 2104, written out: the code under test uses the library's."""
    key = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in key) + text).digest()
    return hashlib.sha256(bytes(b ^ 0x5C for b in key) + inner).digest()


def is_signed(received: Received, secret: str) -> bool:
    kind, _, key = secret.partition("_")
    assert kind == "whsec"
    text = f"{received.id}.{received.headers['webhook-timestamp']}.".encode() + received.body
    expected = base64.b64encode(hmac_sha256(base64.b64decode(key), text)).decode()
    fresh = abs(int(received.headers["webhook-timestamp"]) - time.time()) < 300
    return fresh and received.headers["webhook-signature"] == f"v1,{expected}"


@dataclass
class Receiver:
    """`answer` makes the status of each request; it may wait, or be replaced."""

    url: str = ""
    requests: list[Received] = field(default_factory=list)
    answer: Callable[[Received], int] = lambda _received: 200
    location: str = ""

    def ids(self) -> list[str]:
        return [received.id for received in self.requests]


@contextmanager
def hook_receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run the server for the time of the block; over TLS, under the name localhost, with a context."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            received = Received(self.path, headers, body)
            receiver.requests.append(received)
            status = receiver.answer(received)
            try:
                self.send_response(status)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.end_headers()
                self.wfile.write(b"thanks" * 100_000)
            except OSError:
                pass  # nobody waits any more

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook?farm=1"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        receiver.url = f"https://localhost:{server.server_port}/hook?farm=1"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
