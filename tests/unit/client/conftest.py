"""A scripted HTTP server on a free port: it answers from a list and keeps the requests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from awaited_client import awaited_client

from tunefarm.client import Client, RetryPolicy

QUICK = RetryPolicy(attempts=4, base_sec=0.001, cap_sec=0.002, retry_after_cap_sec=0.01)


@dataclass
class SentRequest:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    drop: bool = False  # close the connection without an answer
    cut: int | None = None  # promise the whole body, send so many bytes, close

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def problem(status: int, code: str, detail: str = "no", **rest: Any) -> Reply:
    headers = rest.pop("headers", {})
    body = {
        "type": f"urn:tunefarm:problem:{code}",
        "title": "T",
        "status": status,
        "detail": detail,
        "code": code,
    }
    return Reply(status, {**body, **rest}, headers, "application/problem+json")


class Scripted(ThreadingHTTPServer):
    """Give it `replies` (used up in order, the last one for ever) or an `answer` function."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[SentRequest] = []
        self.replies: list[Reply] = []
        self.answer: Callable[[SentRequest], Reply] = self._next

    def _next(self, request: SentRequest) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = SentRequest(self.command, parts.path, parse_qs(parts.query), dict(self.headers), body)
        self.server.requests.append(request)
        reply = self.server.answer(request)
        if reply.drop:
            self.close_connection = True
            return
        data = b"" if reply.status == 204 else reply.data
        self.send_response(reply.status)
        for name, value in {"Content-Type": reply.content_type, **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if reply.cut is not None:
            data, self.close_connection = data[: reply.cut], True
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as scripted:
        thread = threading.Thread(target=scripted.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield scripted
        scripted.shutdown()
        thread.join()


@pytest.fixture(params=["blocking", "awaited"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Make clients: of the kind that blocks, and then of that which is awaited."""
    if request.param == "blocking":
        yield Client
        return
    with asyncio.Runner() as runner:
        yield partial(awaited_client, runner)


@pytest.fixture
def client(server: Scripted, connect: Callable[..., Any]) -> Iterator[Any]:
    with connect(server.url, "tfk_id_secret", retry=QUICK, timeout_sec=60) as client:
        yield client


@pytest.fixture
def make_reply() -> type[Reply]:
    return Reply


@pytest.fixture
def make_problem() -> Callable[..., Reply]:
    return problem
