"""Handlers for `test_disk_watch.py`: what an ordinary user's watch sees of processes that are hard to look into."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from tunefarm_tuning.process import disk_watch

_USER = 54321
_SET_DUMPABLE = 4
_END_THREAD = {"x86_64": 60}.get(platform.machine(), 93)
_FILE_BYTES = 1 << 20


def look(params: dict[str, Any]) -> tuple[float, int | None]:
    """Become a user, start a process, and return what it wrote and what it has in deleted files."""
    ready, say_ready = os.pipe()
    with tempfile.TemporaryFile() as deleted:
        deleted.write(b"x" * _FILE_BYTES)
        deleted.flush()
        if os.getuid() == 0:
            os.setresuid(_USER, _USER, _USER)
        if (process := os.fork()) == 0:
            os.setpgid(0, 0)
            _be(params["way"], deleted, say_ready)
    try:
        os.read(ready, 1)
        return disk_watch._written(process), disk_watch._nameless_bytes(process)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _be(way: str, deleted: IO[bytes], say_ready: int) -> None:
    """Misbehave in one way; never returns."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_DUMPABLE, int(way != "hidden"), 0, 0, 0)
    if way != "deleted-by-thread":
        deleted.close()
    if way == "zombie":
        if (process := os.fork()) == 0:
            os._exit(0)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    memory = mmap.mmap(-1, _FILE_BYTES)  # which the kernel calls a deleted file
    memory.write(b"x" * _FILE_BYTES)
    if way == "deleted-by-thread":
        threading.Thread(target=_go_on_alone, args=(say_ready,)).start()
        libc.syscall(ctypes.c_long(_END_THREAD), ctypes.c_long(0))
    os.write(say_ready, b"r")
    time.sleep(600)


def _go_on_alone(say_ready: int) -> None:
    """Wait until the first thread has ended: the process then looks like a zombie."""
    while ") Z" not in Path("/proc/self/stat").read_text():
        time.sleep(0.01)
    os.write(say_ready, b"r")
    time.sleep(600)


HANDLERS = {"look": look}
