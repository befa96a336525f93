"""Handlers that enter the sandbox of a device's session on a GPU, on a machine that need not have one."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tunefarm_tuning.process import sandbox
from tunefarm_tuning.process.sandbox import Access

_NAME_A_THREAD = "open('/proc/self/task/%d/comm' % __import__('os').getpid(), 'w').write('named')"
_ENTER = (
    "from tunefarm_tuning.process import sandbox; sandbox._GPU_SIGNS = ('/dev/null',); "
    "sandbox.enter(sandbox.sandbox_order(sandbox.Access(gpu=True))); "
)


def name_threads(params: dict[str, Any]) -> list[str]:
    """Enter as a session does; return who could name a thread as CUDA's driver does, and which settings could be opened for writing."""
    sandbox._GPU_SIGNS = ("/dev/null",)
    sandbox.enter(sandbox.sandbox_order(Access(gpu=params["gpu"], children=True, programs=True)))
    done = []
    if _may_write(f"/proc/self/task/{threading.get_native_id()}/comm"):
        done.append("itself")
    for who, before in (("a child", ""), ("a child with a sandbox of its own", _ENTER)):
        command = [sys.executable, "-c", before + _NAME_A_THREAD]
        if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0:
            done.append(who)
    settings = (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sysrq-trigger",
        *params["more"],
    )
    return [*done, *filter(_may_write, settings)]


def _may_write(path: str) -> bool:
    try:
        with Path(path).open("r+"):
            return True
    except OSError:
        return False


HANDLERS = {"name_threads": name_threads}
