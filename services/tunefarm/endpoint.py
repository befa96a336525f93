"""The address of a farm on this machine: the farm writes it to its folder, and clients read it there."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

LOCK_NAME = "lock"
KEY_NAME = "api-key"
ENDPOINT_NAME = "endpoint.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a running farm.

    Attributes:
        pid: The supervisor's.
    """

    url: str
    api_key: str
    pid: int


def default_home() -> Path:
    """Return the folder of this user's farm: ``$TUNEFARM_HOME``, else a folder in the user's data."""
    configured = os.environ.get("TUNEFARM_HOME")
    return Path(configured) if configured else Path(platformdirs.user_data_dir("tunefarm"))


def running_endpoint(home: Path) -> Endpoint | None:
    """Return the address of a folder's farm; None if none runs or it is not up yet."""
    try:
        with (home / LOCK_NAME).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
    except BlockingIOError:
        pass  # a farm holds the lock
    except OSError:  # there is no such folder, or it belongs to another user
        return None
    try:
        announced = json.loads((home / ENDPOINT_NAME).read_text(encoding="utf-8"))
        key = (home / KEY_NAME).read_text(encoding="utf-8").strip()
        return Endpoint(url=announced["url"], pid=announced["pid"], api_key=key)
    except (OSError, ValueError, KeyError):
        return None
