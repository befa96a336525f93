"""An answer that takes time is found out once for all who ask, and nobody waits for it with a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from api_server import api_server
from app_farm import farm_settings, make_farm
from starlette.concurrency import run_in_threadpool

from tunefarm_api.kept_answer import KeptAnswer
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.runtime.composition import Services

CALLERS = 100
"""More than the threads of a process."""


def test_those_who_wait_hold_no_thread(services: Services) -> None:
    looks: list[Services] = []
    released = threading.Event()

    def look(looked_at: Services) -> int:
        looks.append(looked_at)
        released.wait(60)
        return len(looks)

    async def ask_at_once() -> set[int]:
        kept = KeptAnswer(look)
        asked = [asyncio.create_task(kept.of(services)) for _ in range(CALLERS)]
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await run_in_threadpool(released.set)
        return set(await asyncio.gather(*asked))

    assert asyncio.run(ask_at_once()) == {1}
    assert looks == [services]


def test_an_error_is_not_kept(services: Services) -> None:
    looks: list[int] = []

    def look(_services: Services) -> str:
        looks.append(1)
        if len(looks) == 1:
            raise ValueError
        return "found"

    async def ask_twice() -> str:
        kept = KeptAnswer(look)
        with pytest.raises(ValueError):
            await kept.of(services)
        return await kept.of(services)

    assert asyncio.run(ask_twice()) == "found"


def test_a_read_key_does_not_have_the_farm_checked_over_and_over(tmp_path: Path) -> None:
    """Before, each request wrote to the database and the store, and waited in a thread for a gateway that does not answer."""
    keys = tmp_path / "keys"
    ensure_authority(keys)
    with socket.create_server(("127.0.0.1", 0), backlog=CALLERS) as gateway:
        address = f"127.0.0.1:{gateway.getsockname()[1]}"
        farm = make_farm(farm_settings(tmp_path, gateway=address, gateway_dir=keys))
        headers = {
            "Authorization": f"Bearer {create_api_key(farm.services, name='reader', scopes=['read'])[1]}"
        }

        with api_server(farm) as server, ThreadPoolExecutor(40) as pool:

            def check(_number: int) -> int:
                return httpx.get(
                    f"{server.url}/v1/checks", headers=headers, timeout=60, trust_env=False
                ).status_code

            assert set(pool.map(check, range(40))) == {200}
        farm.services.close()
        assert waiting_at(gateway) == 1


def waiting_at(server: socket.socket) -> int:
    """Return how many connections nobody has accepted yet."""
    server.settimeout(0.2)
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except TimeoutError:
            return count
        count += 1
