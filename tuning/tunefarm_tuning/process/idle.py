"""Whether this process has come to rest: runtimes' threads go on asking for work after a call, on somebody's cores."""

from __future__ import annotations

import time

_LOOK_SEC = 0.02
_IDLE_SHARE = 0.1  # of a core
_LONGEST_SEC = 3.0


def wait_until_idle(longest_sec: float = _LONGEST_SEC) -> None:
    """Return once this process's threads take no processor time to speak of, or after `longest_sec`.

    What is timed next, in another process, shared its cores with them: ONNX Runtime's wait for work on all of them for
    tens of milliseconds after each call, TVM's for a tenth of a second if nobody says otherwise.
    """
    until = time.monotonic() + longest_sec
    while time.monotonic() < until:
        began, spent = time.monotonic(), time.process_time()
        time.sleep(_LOOK_SEC)
        if time.process_time() - spent < _IDLE_SHARE * (time.monotonic() - began):
            return
