"""A farm in one process, without a compiler; see `tests/support/app_farm.py`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunefarm_app.settings import Settings


def _support(name: str) -> Any:
    path = Path(__file__).parents[2] / "support" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tests_support_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'farm.db'}",
        broker_url="redis://127.0.0.1:1/0",
        store_dir=tmp_path / "store",
        device_retry_sec=0.01,
        lease_sec=30.0,
    )


@pytest.fixture
def farm(settings: Settings) -> Iterator[Any]:
    made = _support("app_farm").make_farm(settings)
    yield made
    made.services.close()
