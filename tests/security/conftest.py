"""A stranger in the farm's children."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzzing import Say
from intruder import Intruder, intruder_at, taken_over

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would rather have httpx2 than httpx
    import starlette.testclient  # noqa: F401  (for the tests that import it after this)


@pytest.fixture
def intruder(tmp_path: Path) -> Iterator[Intruder]:
    with socket.create_server(("127.0.0.1", 0)) as service:
        intruder = intruder_at(tmp_path, service.getsockname()[1])
        with taken_over(intruder):
            yield intruder


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print a line of a long run's result."""

    def write(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}")

    return write
