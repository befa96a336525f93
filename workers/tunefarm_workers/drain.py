"""Let a worker's main process tell its pool to stop, by a file.

Celery's warm shutdown waits for its children's tasks without telling the children. A compile would keep the worker
for many minutes; and after a kill its step would wait for the lease to run out.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VARIABLE = "TUNEFARM_DRAIN_FILE"


@contextmanager
def drain_file() -> Iterator[Path]:
    """Choose the file for this process and the children that it spawns. The file exists while they must stop."""
    path = Path(tempfile.gettempdir()) / f"tunefarm-drain-{os.getpid()}-{secrets.token_hex(8)}"
    os.environ[_VARIABLE] = str(path)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def draining() -> bool:
    """Return whether this process's worker was told to stop."""
    path = os.environ.get(_VARIABLE)
    return path is not None and Path(path).exists()
