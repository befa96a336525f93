"""The awaited client: many requests at once, and cancellation. Other tests run for both kinds of client."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

import tunefarm
from tunefarm.client import (
    AsyncClient,
    AsyncJobHandle,
    Client,
    JobHandle,
    devices,
    jobs,
    keys,
    models,
    records,
    webhooks,
)
from tunefarm.client.http.blocking import each, finish

LIMIT_SEC = 60.0
MODEL = {"id": "mdl_1", "state": "ready", "name": "n"}

PAIRS = [
    (AsyncClient, Client),
    (AsyncJobHandle, JobHandle),
    (jobs.AsyncJobs, jobs.Jobs),
    (models.AsyncModels, models.Models),
    (devices.AsyncDevices, devices.Devices),
    (records.AsyncRecords, records.Records),
    (keys.AsyncKeys, keys.Keys),
    (webhooks.AsyncWebhooks, webhooks.Webhooks),
]


@pytest.mark.parametrize(("awaited", "blocks"), PAIRS)
def test_both_kinds_have_the_same(awaited: type, blocks: type) -> None:
    def methods(kind: type) -> dict[str, Any]:
        return {
            name: member
            for base in kind.__mro__
            for name, member in vars(base).items()
            if not name.startswith("_") and inspect.isfunction(member)
        }

    here, there = methods(awaited), methods(blocks)
    assert set(here) == set(there)
    for name, member in here.items():
        shown, also = inspect.signature(member), inspect.signature(there[name])
        assert shown.parameters == also.parameters
        assert also.return_annotation == shown.return_annotation.removeprefix("Async")
        assert inspect.getdoc(member) == inspect.getdoc(there[name])
        assert not inspect.iscoroutinefunction(there[name])


def test_the_package_has_it() -> None:
    assert tunefarm.AsyncClient is AsyncClient
    assert "AsyncClient" in dir(tunefarm)


def test_many_requests_at_once(server: Any, make_reply: Any) -> None:
    together = threading.Barrier(4, timeout=LIMIT_SEC)

    def answer(request: Any) -> Any:
        together.wait()  # broken unless four are there at the same time
        return make_reply(body={**MODEL, "id": request.path.rsplit("/", 1)[1]})

    server.answer = answer

    async def main() -> list[str]:
        async with AsyncClient(server.url, "k") as client:
            models = await asyncio.gather(*(client.models.get(f"mdl_{n}") for n in range(4)))
            return [model.id for model in models]

    assert asyncio.run(main()) == ["mdl_0", "mdl_1", "mdl_2", "mdl_3"]


def test_a_cancelled_download_leaves_nothing(server: Any, make_reply: Any, tmp_path: Path) -> None:
    server.replies = [make_reply(body=b"x" * 5_000_000, content_type="application/octet-stream")]

    async def main() -> None:
        begun = asyncio.Event()
        async with AsyncClient(server.url, "k") as client:
            download = asyncio.create_task(
                client.jobs.download("job_1", tmp_path, on_progress=lambda *_: begun.set())
            )
            await asyncio.wait_for(begun.wait(), LIMIT_SEC)
            download.cancel()
            with pytest.raises(asyncio.CancelledError):
                await download

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_a_list_can_be_left_early(server: Any, make_reply: Any) -> None:
    job = {"id": "job_1", "model_id": "mdl_1", "state": "queued"}
    server.replies = [make_reply(body={"items": [job, job], "next_cursor": "c"})]

    async def main() -> None:
        async with AsyncClient(server.url, "k") as client:
            async for job in client.jobs.all():
                assert job.id == "job_1"
                break

    asyncio.run(main())
    with Client(server.url, "k") as client:
        assert next(client.jobs.all()).id == "job_1"
    assert len(server.requests) == 2


def test_both_clients_in_one_program(server: Any, make_reply: Any) -> None:
    """As in a notebook, where an event loop runs already."""
    server.replies = [make_reply(body={"items": [], "next_cursor": None})]

    async def main() -> None:
        with Client(server.url, "k") as client:
            assert list(client.jobs.all()) == []
            assert client.devices.list() == ()

    asyncio.run(main())


def test_nothing_blocks_by_suspending() -> None:
    async def pause() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="suspended"):
        finish(pause())

    class Two:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> int:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

    assert list(each(Two())) == [1, 0]
