"""Fixtures for the real server with one device; a conftest imports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from replay_server import ReplayServer, replay_server

from tunefarm.client import Client


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[ReplayServer]:
    """A server with one device."""
    (tmp_path / "farm").mkdir()
    with replay_server(tmp_path / "farm") as server:
        server.add_device()
        yield server


@pytest.fixture
def client(farm: ReplayServer) -> Iterator[Client]:
    with Client(farm.url, farm.api_key) as client:
        yield client
