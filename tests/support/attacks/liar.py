"""A child in which a stranger's bytes have taken over: it answers whatever it is asked with what the file ``LIES`` says, as JSON.

By a method's name: ``{"value"}``, ``{"error"}`` (as `TunefarmError.to_json`), or ``{"raw"}``, a text to be repeated ``"times"``, which is sent
in place of JSON. A method without a lie is answered with null.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import TunefarmError

LIES: dict[str, dict[str, Any]] = json.loads(Path(os.environ["LIES"]).read_text())


class _StatedError(TunefarmError):
    """An error of which the parent is told what the lie says."""

    def __init__(self, stated: dict[str, Any]) -> None:
        super().__init__("")
        self._stated = stated

    def to_json(self) -> dict[str, Any]:
        return self._stated


def _answer_with(lie: dict[str, Any]) -> Any:
    if "raw" in lie:
        _send_raw(lie["raw"].encode() * lie.get("times", 1) + b"\n")
    if "error" in lie:
        raise _StatedError(lie["error"])
    return lie.get("value")


def _send_raw(data: bytes) -> None:
    """Write to the pipe of answers, which is the one pipe that is open to write beside the standard streams."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        descriptor = int(name)
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
            is_written = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        except OSError:
            continue
        if descriptor > 2 and is_pipe and is_written:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]


class _Handlers(dict[str, Callable[[dict[str, Any]], Any]]):
    def get(self, method: str, _default: Any = None) -> Callable[[dict[str, Any]], Any]:  # type: ignore[override]
        lie = LIES.get(method, {})
        return lambda _params: _answer_with(lie)


HANDLERS = _Handlers()
