"""The real server for the client's tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import Client


def _support(name: str) -> Any:
    path = Path(__file__).parents[2] / "support" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tests_support_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Any]:
    """A server with one device."""
    (tmp_path / "farm").mkdir()
    with _support("replay_server").replay_server(tmp_path / "farm") as server:
        server.add_device()
        yield server


@pytest.fixture
def client(farm: Any) -> Iterator[Client]:
    with Client(farm.url, farm.api_key) as made:
        yield made
