"""What tests are built of, from `tests/support`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def support() -> Callable[[str], Any]:
    """A function that returns a module of `tests/support`."""

    def load(name: str) -> Any:
        path = Path(__file__).parents[2] / "support" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"tests_support_{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
        spec.loader.exec_module(module)
        return module

    return load
