"""Handlers for `test_child.py`: each misbehaves in its own way."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
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
    ctypes.PyDLL(None).sleep(600)


def write_files(params: dict[str, Any]) -> int:
    """Write files of a MiB each, far below the limit of a file, until nothing lets it; return their number."""
    folder = Path(params["folder"])
    for number in range(params["count"]):
        path = folder / str(number) if params["way"] != "nested" else folder / "/".join(["d"] * number)
        if params["way"] == "nested":
            path.mkdir(exist_ok=True)
            path = path / "file"
        if params["way"] == "hidden":
            (folder / "hidden").mkdir(mode=0o300, exist_ok=True)
            path = folder / "hidden" / str(number)
        if params["way"] == "empty":
            path.touch()
            continue
        file = os.open(path, os.O_CREAT | os.O_RDWR)
        os.write(file, b"x" * params.get("bytes", 1 << 20))
        if params["way"] in ("deleted", "mapped"):
            path.unlink()
        if params["way"] == "mapped":
            _kept.append(mmap.mmap(file, mmap.PAGESIZE))
        if params["way"] != "deleted":
            os.close(file)
        time.sleep(params.get("pause_sec", 0.0))
    if params.get("stay", True):
        time.sleep(600)
    return int(params["count"])


_kept: list[mmap.mmap] = []


def write_to_nobody(params: dict[str, Any]) -> None:
    """Write many bytes that are in no file, as one does who sends them over a pipe."""
    with Path(os.devnull).open("wb") as nobody:
        nobody.writelines(b"x" * (1 << 20) for _ in range(params["count"]))
    if params.get("stay"):
        time.sleep(600)


def write_later(params: dict[str, Any]) -> None:
    threading.Thread(target=write_files, args=(params,), daemon=True).start()


def open_memory_file(params: dict[str, Any]) -> int:
    return os.memfd_create("f")


HANDLERS = {
    handler.__name__: handler
    for handler in (
        *(echo, pid, noise, die, leave, spin, sleep, allocate, refuse, stumble, not_json),
        *(grandchild, environment, native_wait, spanned, write_files, write_later, open_memory_file),
        write_to_nobody,
    )
}
