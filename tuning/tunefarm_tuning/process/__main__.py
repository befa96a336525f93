"""The child's side: ``python -m tunefarm_tuning.process LIFELINE_FD [MODULE ...]``; it imports the modules before anybody asks.

One JSON object a line. First the order in, ``{"module", "limits", "sandbox", "environment"}``, and a value out, ``{"sandbox",
"relay_key"}``: which sandbox it has, and the public key of its relay. Then ``{"method", "params", "spans"}`` in; ``{"value"}``,
``{"error"}`` or ``{"out_of_memory"}`` out, with the ``spans`` of the call if they were asked for. What libraries print goes to standard
error. Ends at the end of its input.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from tunefarm_tuning.core.errors import InvariantError, TunefarmError
from tunefarm_tuning.core.spans import SpanLog, recording
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.lifeline import die_at_end
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.process.relay.client import start_relay
from tunefarm_tuning.process.sandbox import enter, relay_order

_MEMORY_WORDS = ("bad_alloc", "out of memory", "cannot allocate memory")
_TRACEBACK_LINES = 6


def main(argv: list[str]) -> int:
    """Serve until the input ends."""
    lifeline_fd, *early = argv
    requests, replies = _take_over_standard_streams()
    watch_lifeline = die_at_end(int(lifeline_fd))
    faulthandler.enable()
    # Imports make no garbage. Collecting it would take a tenth of the time of TVM's import.
    gc.disable()
    for module in early:
        with contextlib.suppress(Exception):  # the order's own import says what is wrong
            importlib.import_module(module)
    if not (line := requests.readline()):
        return 0
    order = json.loads(line)
    sandbox, module = order["sandbox"], order["module"]
    os.environ.update(order["environment"])
    tempfile.tempdir = None  # an early import may have looked it up
    ChildLimits.from_text(order["limits"]).apply()
    handlers: Mapping[str, Callable[[dict[str, Any]], Any]] = {}

    def load() -> dict[str, Any]:
        nonlocal handlers
        asked = relay_order(sandbox)
        relay = None if asked is None else start_relay(*asked)
        handlers = importlib.import_module(module).HANDLERS
        gc.freeze()
        gc.enable()
        # Not before the import, which writes compiled modules beside their sources.
        state = enter(sandbox, None if relay is None else relay.port)
        watch_lifeline()
        return {"sandbox": state.to_json(), "relay_key": None if relay is None else relay.key}

    answer = _answer(load)
    # Libraries such as TVM install signal handlers of their own, which may wait for ever for a lock of the crashed code.
    faulthandler.disable()
    faulthandler.enable()
    _send(replies, answer)
    for line in requests:
        request = json.loads(line)

        def work(request: dict[str, Any] = request) -> Any:
            handler = handlers.get(request["method"])
            if handler is None:
                raise InvariantError(f"{module} has no handler {request['method']!r}")
            return handler(request["params"])

        if not request.get("spans"):
            _send(replies, _answer(work))
            continue
        with recording(SpanLog()) as log:
            answer = _answer(work)
        _send(replies, {**answer, "spans": [noted.to_json() for noted in log.spans]})
    return 0


def _take_over_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Move the protocol to descriptors of its own, so that no library can print into it."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return requests, replies


def _answer(work: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": work()}
    except TunefarmError as error:
        return {"error": error.to_json()}
    except MemoryError as error:
        return {"out_of_memory": clean(str(error) or "MemoryError")}
    except Exception as error:  # noqa: BLE001  (any of the libraries' own; the parent makes it a value)
        text = str(error)
        if any(word in text.lower() for word in _MEMORY_WORDS):
            return {"out_of_memory": clean(text, 300)}
        lines = traceback.format_exc().rstrip().splitlines()[-_TRACEBACK_LINES:]
        return {
            "error": InvariantError(
                f"{type(error).__name__}: {clean(text, 500)}",
                exception=type(error).__name__,
                traceback=[clean(line, 200) for line in lines],
            ).to_json()
        }


def _send(replies: BinaryIO, reply: dict[str, Any]) -> None:
    try:
        data = json.dumps(reply, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        data = json.dumps({"error": InvariantError(f"a handler's value is not JSON: {error}").to_json()})
    view = memoryview(data.encode() + b"\n")
    while view:
        view = view[replies.write(view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
