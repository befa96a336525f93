"""Handlers for `test_child.py`: each misbehaves in its own way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.spans import SpanKind, span


def echo(params: dict[str, Any]) -> Any:
    return params


def spanned(params: dict[str, Any]) -> None:
    with span("in the child", SpanKind.LLVM):
        if params.get("fail"):
            raise InvalidModelError("no")


def pid(params: dict[str, Any]) -> int:
    return os.getpid()


def noise(params: dict[str, Any]) -> str:
    print("a print" * 10)
    os.write(1, b"a library's write\n" * 10)
    os.write(2, b"x" * 300_000)
    return "fine"


def die(params: dict[str, Any]) -> None:
    os.write(2, b"last words \x1b[31m\n")
    os.kill(os.getpid(), getattr(signal, params["signal"]))
    time.sleep(600)


def leave(params: dict[str, Any]) -> None:
    os._exit(params["code"])


def spin(params: dict[str, Any]) -> None:
    while True:
        pass


def sleep(params: dict[str, Any]) -> str:
    time.sleep(params["sec"])
    return "slept"


def allocate(params: dict[str, Any]) -> int:
    return len(bytearray(params["bytes"]))


def refuse(params: dict[str, Any]) -> None:
    raise InvalidModelError("no such operator", code="unsupported-operator", operator="Loop")


def stumble(params: dict[str, Any]) -> None:
    raise ZeroDivisionError("by zero\x1b[0m")


def not_json(params: dict[str, Any]) -> object:
    return object()


def grandchild(params: dict[str, Any]) -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def environment(params: dict[str, Any]) -> dict[str, str]:
    return dict(os.environ)


def native_wait(params: dict[str, Any]) -> None:
    """Hold the interpreter's lock in native code, as a compiler pass does."""
    import ctypes

    ctypes.PyDLL(None).sleep(600)


HANDLERS = {
    handler.__name__: handler
    for handler in (
        *(echo, pid, noise, die, leave, spin, sleep, allocate, refuse, stumble, not_json),
        *(grandchild, environment, native_wait, spanned),
    )
}
