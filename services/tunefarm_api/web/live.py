"""Tell open pages what changed in the farm, by one stream of server-sent events per browser.

A notice names what changed, without the new values: the page loads its regions again. So a page misses no change.
A page asks once when its stream greets it: when it has just been opened, and after a break (it slept, or the API was
restarted). Changes between two looks at the database are one notice, however many there were.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.session import session_text
from tunefarm_app.access.browser_sessions import session_key
from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.job import OPEN_STATES
from tunefarm_tuning.core.errors import TransientError

log = structlog.stdlib.get_logger(__name__)
router = APIRouter(include_in_schema=False)

LOOK_EVERY_SEC = 0.7
KEEP_ALIVE_SEC = 15.0
"""How often an idle stream says that it lives. As often it is looked at whether its session is still good."""

_RECONNECT_MS = 1000

Heads = Mapping[str, Any]
"""Topic -> what tells whether it has changed."""


class Live:
    """Looks at the database as long as any page listens, and tells all of them.

    Concurrency: of one event loop; the looks are taken in threads.
    """

    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()
        self._watching: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._closed = False

    async def stream(self, services: Services, session: str) -> AsyncIterator[bytes]:
        """Yield the stream of one browser, until its session is over or the process ends."""
        listener = _Listener()
        self._listeners.add(listener)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(services))
        check_at = time.monotonic() + KEEP_ALIVE_SEC
        try:
            yield f"retry: {_RECONNECT_MS}\n\n".encode()
            await self._looked.wait()  # what changes from now on is told; a page asks once after the greeting
            yield b"event: hello\ndata: {}\n\n"
            while not self._closed:
                topics = await listener.wait(KEEP_ALIVE_SEC)
                if time.monotonic() >= check_at:
                    check_at = time.monotonic() + KEEP_ALIVE_SEC
                    if not await _is_good(services, session):
                        return
                yield f"event: changed\ndata: {json.dumps(topics)}\n\n".encode() if topics else b":\n\n"
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._watching is not None:
                self._watching.cancel()
                self._watching = None
                self._looked.clear()

    def close(self) -> None:
        """End all streams, now and from now on: a server that ends waits for its answers."""
        self._closed = True
        self._looked.set()
        for listener in self._listeners:
            listener.tell({})

    async def _watch(self, services: Services) -> None:
        before: Heads | None = None
        while True:
            try:
                now = await run_in_threadpool(look, services, before or {})
            except TransientError as error:
                log.debug("no look at the farm", error=error.message)
            else:
                changed = {} if before is None else changes(before, now)
                before = now
                self._looked.set()
                for listener in self._listeners if changed else ():
                    listener.tell(changed)
            await asyncio.sleep(LOOK_EVERY_SEC)


class _Listener:
    def __init__(self) -> None:
        self._pending: dict[str, int] = {}
        self._changed = asyncio.Event()

    def tell(self, topics: Mapping[str, int]) -> None:
        self._pending.update(topics)
        self._changed.set()

    async def wait(self, timeout_sec: float) -> dict[str, int]:
        try:
            async with asyncio.timeout(timeout_sec):
                await self._changed.wait()
        except TimeoutError:
            return {}
        self._changed.clear()
        topics, self._pending = self._pending, {}
        return topics


def look(services: Services, before: Heads) -> Heads:
    """Return how everything stands that a page may show live. Jobs that were open `before` are followed to their end."""
    open_before = [topic.partition(":")[2] for topic, head in before.items() if _is_open_job(topic, head)]
    with services.uow.read() as repos:
        jobs = repos.overview.job_heads(open_before)
        models = repos.overview.model_heads()
        devices = repos.overview.device_heads()
        webhooks = repos.deliveries.heads()
        keys = repos.api_keys.head()
    return {
        **{f"job:{job.id}": job for job in jobs},
        **{f"model:{model.id}": model for model in models},
        **{f"device:{device.id}": device for device in devices},
        **{f"webhook:{webhook.id}": webhook for webhook in webhooks},
        "keys": keys,
    }


def changes(before: Heads, now: Heads) -> dict[str, int]:
    """Return the topics that changed, each with the number of its newest event; 0 where there are no numbers."""
    changed = {
        topic: int(getattr(head, "event_seq", 0)) for topic, head in now.items() if before.get(topic) != head
    }
    gone = {topic: 0 for topic in before.keys() - now.keys() if topic.startswith(("device:", "webhook:"))}
    return {**changed, **gone}


@router.get("/live", dependencies=[needs("read")])
async def live(request: Request, services: ServicesDep) -> StreamingResponse:
    """A stream of what changes, for pages to renew themselves."""
    stream = request.app.state.live.stream(services, session_text(request.scope, request.headers) or "")
    return StreamingResponse(
        stream,
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"},
    )


def _is_open_job(topic: str, head: Any) -> bool:
    return topic.startswith("job:") and head.state in OPEN_STATES


async def _is_good(services: Services, session: str) -> bool:
    try:
        return await run_in_threadpool(session_key, services, session, is_use=False) is not None
    except TransientError:
        return True
