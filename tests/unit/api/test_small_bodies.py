"""Bodies that are too large, too slow, or never end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from tunefarm_api.small_bodies import MAX_BODY_BYTES, limited


def piece(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def client_of(pieces: Sequence[Message], *, pause_sec: float = 0.0) -> Receive:
    """Return a client that sends these pieces, then nothing more."""
    left = list(pieces)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        await asyncio.sleep(pause_sec)
        return left.pop(0)

    return receive


def scope_of(length: str | None = None) -> Scope:
    headers = [] if length is None else [(b"content-length", length.encode())]
    return {"type": "http", "headers": headers}


def refused(scope: Scope, receive: Receive, calls: int) -> HTTPException:
    async def read() -> None:
        for _ in range(calls):
            await receive()
        with pytest.raises(HTTPException) as caught:
            await receive()
        errors.append(caught.value)

    errors: list[HTTPException] = []
    asyncio.run(read())
    assert scope["tunefarm.close"] is True
    return errors[0]


def test_a_client_that_falls_silent() -> None:
    scope = scope_of("100")
    receive = limited(scope, client_of([piece(b"key=a")]), message_sec=0.05)
    error = refused(scope, receive, calls=1)
    assert error.status_code == 408
    assert "too slowly, or stopped" in error.detail


def test_a_client_that_sends_a_byte_now_and_then() -> None:
    scope = scope_of()
    receive = limited(scope, client_of([piece(b"a")] * 1000, pause_sec=0.01), message_sec=60.0, body_sec=0.1)

    async def read() -> None:
        while True:
            await receive()

    with pytest.raises(HTTPException) as caught:
        asyncio.run(read())
    assert caught.value.status_code == 408
    assert scope["tunefarm.close"] is True


def test_waiting_for_a_client_to_go_has_no_limit() -> None:
    gone = asyncio.Event()
    pieces = [piece(b"a", more=False)]

    async def client() -> Message:
        if pieces:
            return pieces.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def read() -> list[Message]:
        receive = limited(scope_of(), client, message_sec=0.01, body_sec=0.01)
        body = await receive()
        asyncio.get_running_loop().call_later(0.1, gone.set)
        return [body, await receive()]

    assert [message["type"] for message in asyncio.run(read())] == ["http.request", "http.disconnect"]


def test_too_large() -> None:
    scope = scope_of(str(MAX_BODY_BYTES + 1))
    assert refused(scope, limited(scope, client_of([])), calls=0).status_code == 413
    scope = scope_of()
    half = piece(bytes(MAX_BODY_BYTES // 2))
    assert refused(scope, limited(scope, client_of([half, half, piece(b"a")])), calls=2).status_code == 413
