"""A farm's folder: data, logs, API key, and the lock that allows one farm per folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path

from tunefarm.endpoint import ENDPOINT_NAME, KEY_NAME, LOCK_NAME, Endpoint, default_home, running_endpoint
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.core.output_file import write_durably

_LOCK_PATIENCE_SEC = 2.0
_LOG_BYTES = 5 << 20
_LOGS_KEPT = 3


class FarmHome:
    """A farm's folder. `prepare` creates its contents."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = Path(path or default_home()).expanduser().absolute()
        self.database_path = self.path / "tunefarm.db"
        self.store_dir = self.path / "store"
        self.log_dir = self.path / "logs"
        self.valkey_dir = self.path / "valkey"
        self.device_dir = self.path / "device"
        self.gateway_dir = self.path / "gateway"
        self.signing_key = self.path / "signing" / "key.pem"
        self.key_file = self.path / KEY_NAME
        self.device_token_file = self.path / "device-token"
        self._lock_file = self.path / LOCK_NAME
        self.endpoint_file = self.path / ENDPOINT_NAME

    @property
    def database_url(self) -> str:
        """The URL of the farm's database."""
        return f"sqlite:///{self.database_path}"

    def prepare(self) -> None:
        """Make the folders, for this user alone. An existing folder's mode is its owner's choice and stays.

        Raises:
            InvalidInputError: ``bad-home`` if a file is where a folder should be, or the folder cannot be made.
        """
        for folder in (self.path, self.store_dir, self.log_dir, self.valkey_dir, self.device_dir):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                why = "it is a file" if folder.is_file() else error.strerror or str(error)
                raise InvalidInputError(
                    f"{folder} cannot be a folder of the farm: {why}. Give another folder with --home",
                    code="bad-home",
                ) from error

    def lock(self) -> int:
        """Lock the folder for one farm; return the descriptor that holds the lock until it is closed.

        Raises:
            ConflictError: ``farm-running`` if a farm has it.
        """
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + _LOCK_PATIENCE_SEC  # `running` holds the lock for a moment
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() > until:
                    os.close(descriptor)
                    raise self._taken() from None
                time.sleep(0.05)

    def running(self) -> Endpoint | None:
        """Return the address of the folder's farm; None if none runs or it is not up yet."""
        return running_endpoint(self.path)

    def announce(self, url: str) -> None:
        """Store the farm's address."""
        write_durably(self.endpoint_file, json.dumps({"url": url, "pid": os.getpid()}), mode=0o644)

    def withdraw(self) -> None:
        """Delete the farm's address."""
        self.endpoint_file.unlink(missing_ok=True)

    def read_api_key(self) -> str:
        """Return the farm's API key."""
        return self.key_file.read_text(encoding="utf-8").strip()

    def log_path(self, process: str) -> Path:
        """Return the log file of a process."""
        return self.log_dir / f"{process}.log"

    def open_log(self, process: str) -> int:
        """Return a descriptor that appends to the process's log; a large log is put aside first, the oldest deleted."""
        path = self.log_path(process)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > _LOG_BYTES:
                for number in range(_LOGS_KEPT, 0, -1):
                    older = path.with_suffix(f".log.{number}")
                    newer = path.with_suffix(f".log.{number - 1}") if number > 1 else path
                    with contextlib.suppress(FileNotFoundError):
                        newer.replace(older)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _taken(self) -> ConflictError:
        endpoint = self.running()
        where = f", at {endpoint.url}" if endpoint else ""
        return ConflictError(
            f"a farm runs in {self.path} already{where}: use it, or give another --home",
            code="farm-running",
            home=str(self.path),
        )
