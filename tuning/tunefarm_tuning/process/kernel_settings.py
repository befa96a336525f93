"""Takes the kernel's settings in ``/proc`` away from a process of root, whom their modes let write there.

As container runtimes do: in a mount namespace of its own, all of ``/proc`` that is not of a process is read-only.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_NEW_MOUNTS = 0x00020000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_TELLING = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger")
"""Whoever writes them has the machine."""


def protect() -> bool:
    """Take the settings away from this process, for good; return whether it cannot write them now.

    Root without the right to mount, as in most containers, has them read-only already.
    """
    if os.getuid() != 0:
        return True
    with suppress(OSError):
        _mount_read_only([path for path in Path("/proc").iterdir() if _is_setting(path)])
    return not any(os.access(path, os.W_OK) for path in _TELLING)


def _is_setting(path: Path) -> bool:
    return not path.name.isdigit() and not path.is_symlink()


def _mount_read_only(paths: list[Path]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_NEW_MOUNTS))
    _check(libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None))
    for path in map(os.fsencode, paths):
        with suppress(OSError):  # some are mounts of their own, or gone
            _check(libc.mount(path, path, None, _BIND | _RECURSIVE, None))
            _check(libc.mount(None, path, None, _BIND | _REMOUNT | _READ_ONLY, None))


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
