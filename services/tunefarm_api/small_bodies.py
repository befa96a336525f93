"""Limits of every body except those of uploads, which have their own: its size, and the time that it may take to come."""

from __future__ import annotations

import asyncio
import time

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

MAX_BODY_BYTES = 1 << 20

MESSAGE_SEC = 10.0
"""Longest pause of a client in its body. A request holds one of the places of its key, or of those without one."""

BODY_SEC = 30.0
"""How long a body may take to come."""


def limited(
    scope: Scope, receive: Receive, *, message_sec: float = MESSAGE_SEC, body_sec: float = BODY_SEC
) -> Receive:
    """Return what receives the request, and raises an `HTTPException` of 413 or 408 if its body is too large or too slow.

    Args:
        scope: The request.
        receive: What receives it.
        message_sec: Longest pause.
        body_sec: Longest time from the first call to the last byte.
    """
    length = Headers(scope=scope).get("content-length", "")
    received_bytes = 0
    until: float | None = None
    has_ended = False

    async def receive_limited() -> Message:
        nonlocal received_bytes, until, has_ended
        if length.isdecimal() and int(length) > MAX_BODY_BYTES:
            raise refused(413, f"the request's body is larger than {MAX_BODY_BYTES} bytes")
        if has_ended:  # what is left is that the client disconnects, whenever that is
            return await receive()
        now = time.monotonic()
        until = now + body_sec if until is None else until
        try:
            async with asyncio.timeout(min(message_sec, until - now)):
                message = await receive()
        except TimeoutError:
            raise refused(408, "the request's body came too slowly, or stopped: send it again") from None
        has_ended = message["type"] != "http.request" or not message.get("more_body", False)
        received_bytes += len(message.get("body", b""))
        if received_bytes > MAX_BODY_BYTES:
            raise refused(413, f"the request's body is larger than {MAX_BODY_BYTES} bytes")
        return message

    def refused(status: int, detail: str) -> HTTPException:
        scope["tunefarm.close"] = True  # the rest of the body is not read
        # An exception of the framework: its body parser lets those pass.
        return HTTPException(status, detail)

    return receive_limited
