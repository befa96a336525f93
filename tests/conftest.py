"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
import structlog
import typer.testing
from hypothesis import HealthCheck, settings
from private_postgres import PrivatePostgres, started_postgres

pytest_plugins = ("exhaustive", "forked_children", "shared_statements")

# How long a machine takes to draw or try an example says nothing about the code.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

# A process that calls TVM is bound to one core otherwise, and all that it starts later.
os.environ.setdefault("TVM_BIND_THREADS", "0")
# Other tests run beside this one: a farm would take all the time that it may to time a network better.
os.environ.setdefault("TUNEFARM_TIMING_SEC", "0")
# A farm would import TVM for its next job, which tests' farms do not have; `test_command.py` has a farm as users have it.
os.environ.setdefault("TUNEFARM_WARM_CHILDREN", "0")
# A graph pass of ours that fails must not hide behind another layout.
os.environ.setdefault("TUNEFARM_STRICT_PASSES", "1")

# Typer makes all commands anew at each call of one: tests that call twenty would make two thousand.
typer.testing._get_command = cache(typer.testing._get_command)

# By default structlog shows the values of all variables of a traceback, which takes up to ten seconds of the processor.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback


def pytest_configure(config: pytest.Config) -> None:
    """Let tests send Ctrl-C: a run in a shell's background ignores it, and its children would inherit that."""
    config.addinivalue_line("markers", "slow: waits for more than a minute, and works little meanwhile")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" in os.environ:
        # pytest imports readline, which gives the processes that it starts the size of a terminal that is not there.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are collected: there is none, and later collections need not look through all of them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def private_postgres() -> Iterator[PrivatePostgres]:
    """A private PostgreSQL server, which ends with the session."""
    server = started_postgres("fsync=off", "max_connections=100")
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres_server(private_postgres: PrivatePostgres) -> str:
    """URL of the private PostgreSQL server."""
    return private_postgres.url


@pytest.fixture
def new_postgres_url(private_postgres: PrivatePostgres) -> Iterator[Callable[[], str]]:
    """A function that makes an empty PostgreSQL database and returns its URL; all are dropped after the test."""
    import psycopg

    names: list[str] = []
    private_postgres.start_if_ended()
    postgres_server = private_postgres.url

    def make() -> str:
        name = f"test_{uuid4().hex}"
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        names.append(name)
        return postgres_server.replace("/postgres?", f"/{name}?")

    yield make
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for name in names:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database: each test runs once on SQLite, once on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tunefarm.db'}"
    make: Callable[[], str] = request.getfixturevalue("new_postgres_url")
    return make()
