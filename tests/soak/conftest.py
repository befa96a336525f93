"""The sizes of soaks: the small one runs in CI, `make soak` runs the big one (``TUNEFARM_SOAK=big``)."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from soak_farm import Figures

SIZE = os.environ.get("TUNEFARM_SOAK", "small")


@pytest.fixture
def size() -> str:
    assert SIZE in ("small", "middle", "big"), "TUNEFARM_SOAK is small, middle or big"
    return SIZE


@pytest.fixture(params=["postgres"] if SIZE == "small" else ["sqlite", "postgres"])
def farm_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database; the tests of the workers have broken a farm on SQLite when CI comes here."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tunefarm.db'}"
    make: Callable[[], str] = request.getfixturevalue("new_postgres_url")
    return make()


@pytest.fixture
def rng() -> random.Random:
    """Random numbers that choose the faults; the timing of processes stays as it comes."""
    return random.Random(20260)


@pytest.fixture
def report(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[[Figures], None]:
    """A function that prints a soak's figures, and adds them to the file that ``TUNEFARM_SOAK_REPORT`` names."""

    def write(figures: Figures) -> None:
        line = json.dumps({"soak": request.node.name, "size": SIZE, **dataclasses.asdict(figures)})
        if SIZE != "small":
            with capsys.disabled():
                print(f"\n{line}")
        if path := os.environ.get("TUNEFARM_SOAK_REPORT"):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    return write
