"""`SessionBaselines`: the baselines of a session with a device, each in a child process there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tunefarm_tuning.core.errors import InvariantError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.baselines.baseline import MODULE
from tunefarm_tuning.measure.baselines.runtimes import KINDS
from tunefarm_tuning.process import Access, ChildLimits, ChildProcess

FILES = ("path", "inputs", "expected", "widths")
"""The parameters of `child`'s handlers that name files; the last may be null."""


class SessionBaselines:
    """Runs `child` for a session on another machine. Concurrency: one caller; the children end with their session's process."""

    def __init__(self) -> None:
        self._children: dict[str, ChildProcess] = {}

    def control(self, request: str) -> str:
        """Call a handler of a baseline's child.

        `request` is JSON: ``{"kind", "method", "params", "timeout_sec"}``; files in ``params`` were uploaded.

        Returns:
            JSON: the handler's reply; or ``{"failed"}``, why there is none. The child has ended then.
        """
        asked = json.loads(request)
        kind, params = str(asked["kind"]), dict(asked["params"])
        if kind not in KINDS:
            return json.dumps(
                {
                    "failed": f"the device's agent is older than this farm and does not support {clean(kind, 40)}"
                }
            )
        files = {name: Path(params[name]).absolute() for name in FILES if params.get(name)}
        params |= {name: str(path) for name, path in files.items()}
        try:
            reply = self._child(kind, files).call(asked["method"], params, timeout_sec=asked["timeout_sec"])
        except TunefarmError as error:
            self._end(kind)
            return json.dumps({"failed": f"it failed on the device: {clean(error.message, 200)}"})
        return json.dumps(reply)

    def _child(self, kind: str, files: Mapping[str, Path]) -> ChildProcess:
        """Return a baseline's child; a new one, which may read these files alone, where it opens a network."""
        if "path" in files:
            self._end(kind)
            access = Access(reads=tuple(files.values()))
            self._children[kind] = ChildProcess(MODULE, limits=ChildLimits(memory_bytes=None), access=access)
        if kind not in self._children:
            raise InvariantError("no network is open")
        return self._children[kind]

    def _end(self, kind: str) -> None:
        if (child := self._children.pop(kind, None)) is not None:
            child.close()
