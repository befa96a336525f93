"""The handle of a farm on this machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tunefarm.embedded.home import FarmHome
from tunefarm.embedded.options import FarmEvent, FarmOptions
from tunefarm_tuning.core.errors import InvariantError, TransientError, TunefarmError, error_from_json

if TYPE_CHECKING:
    from tunefarm.client import Client

START_PATIENCE_SEC = 300.0
_STOP_PATIENCE_SEC = 60.0


class EmbeddedFarm:
    """A farm that runs until the end of the ``with`` block, or until `stop`.

    ::

        with EmbeddedFarm(home) as farm:
            client = farm.connect()

    In a notebook, where a block cannot span cells: ``farm = EmbeddedFarm("farm").start()``.

    Ownership: the farm's processes end with the block, and with this process, even if it is killed.
    Concurrency: any thread. `on_event` is called in a thread of the farm.
    Failure: `ConflictError` (``farm-running``) if a farm runs in the folder already; `TransientError` (``farm-failed``)
        with the end of the log of the process that failed.

    Args:
        home: Folder of the farm's data; None for the user's default.
        options: Options of the farm.
        on_event: Called with each event of the farm.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        options: FarmOptions | None = None,
        *,
        on_event: Callable[[FarmEvent], None] | None = None,
    ) -> None:
        self.home = FarmHome(home)
        self.options = options or FarmOptions()
        self._on_event = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._changed = threading.Condition()
        self._url: str | None = None
        self._ready = False
        self._ended = False
        self._error: TunefarmError | None = None

    @property
    def url(self) -> str:
        """The API's URL."""
        if self._url is None:
            raise InvariantError("the farm was not started")
        return self._url

    @property
    def api_key(self) -> str:
        """An API key with all rights."""
        return self.home.read_api_key()

    @property
    def device_key(self) -> str:
        """The pool that this machine is in."""
        return self.options.device_key

    def start(self) -> Self:
        """Start the farm. Returns when its API answers; the device takes some seconds more (see `wait_ready`)."""
        if self._process is not None:
            raise InvariantError("a farm can be started only once per handle")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tunefarm.embedded", f"--home={self.home.path}"),
                *(f"--options={self.options.to_text()}", "--with-stdin"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # only the owner handles Ctrl-C
        )
        self._reader = threading.Thread(target=self._read_events, name="farm-events", daemon=True)
        self._reader.start()
        try:
            self._wait_for(lambda: self._url is not None, START_PATIENCE_SEC, "its API did not answer")
        except BaseException:
            self.stop()
            raise
        return self

    def wait_ready(self, timeout_sec: float = START_PATIENCE_SEC) -> None:
        """Wait until all processes are up: the worker takes steps, and the device can measure.

        Raises:
            TransientError: If it takes longer than `timeout_sec`, or the farm failed.
        """
        self._wait_for(lambda: self._ready, timeout_sec, "not all of its processes were up")

    def connect(self) -> Client:
        """Wait until all processes are up, and return a client of the farm.

        Raises:
            TransientError: As for `wait_ready`.
        """
        from tunefarm.client import Client

        self.wait_ready()
        return Client(self.url, self.api_key)

    def wait(self) -> None:
        """Wait until the farm ends, by a signal or a failure.

        Raises:
            TransientError: If it failed.
        """
        with self._changed:
            while not self._ended:
                self._changed.wait(1.0)  # a wait with a time limit can be interrupted by Ctrl-C
        self._raise_error()

    def stop(self) -> None:
        """End the farm and all its processes, and wait for their end. Safe to call twice."""
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait(_STOP_PATIENCE_SEC)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Also after a second Ctrl-C ended the wait: the processes end with the supervisor.
            process.kill()
            process.wait()
        reader.join()
        process.stdout.close()

    def __repr__(self) -> str:
        state = (
            "not started" if self._process is None else "ended" if self._ended else self._url or "starting"
        )
        return f"<EmbeddedFarm in {self.home.path}: {state}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_for(self, condition: Callable[[], bool], timeout_sec: float, otherwise: str) -> None:
        until = time.monotonic() + timeout_sec
        with self._changed:
            while not condition():
                if self._ended:
                    break
                left_sec = until - time.monotonic()
                if left_sec <= 0:
                    raise TransientError(
                        f"the farm in {self.home.path} was started, but {otherwise} within {timeout_sec:g} s; "
                        f"its logs are in {self.home.log_dir}",
                        code="farm-failed",
                    )
                self._changed.wait(min(left_sec, 1.0))
            else:
                return
        self._raise_error()
        raise TransientError("the farm ended", code="farm-failed")

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _read_events(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = FarmEvent.from_text(line.decode("utf-8"))
            except (ValueError, TypeError):
                continue
            self._note(event)
            if self._on_event is not None:
                self._on_event(event)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _note(self, event: FarmEvent) -> None:
        with self._changed:
            self._url = event.data.get("url") or self._url
            self._ready = self._ready or event.kind == "ready"
            if event.kind == "failed":
                self._error = error_from_json(event.data["error"])
            self._changed.notify_all()
