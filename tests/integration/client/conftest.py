"""The real server for these tests, and both kinds of client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from awaited_client import awaited_client
from replay_fixtures import farm

from tunefarm.client import Client

__all__ = ["client", "farm"]


@pytest.fixture(params=["blocking", "awaited"])
def client(request: pytest.FixtureRequest, farm: Any) -> Iterator[Any]:
    if request.param == "blocking":
        with Client(farm.url, farm.api_key) as client:
            yield client
        return
    with asyncio.Runner() as runner, awaited_client(runner, farm.url, farm.api_key) as client:
        yield client
