"""Takes the kernel's settings in ``/proc`` away from a process of root, whom their modes let write there.

As container runtimes do: in a mount namespace of its own, all of ``/proc`` that is not of a process is read-only.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_NEW_MOUNTS, _DETACH = 0x00020000, 2
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE, _SLAVE = 1, 32, 4096, 16384, 1 << 18, 1 << 19
_PROC = "/proc"
_TELLING = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger")
"""Whoever writes them has the machine."""


def protect() -> bool:
    """Take the settings away from this process, for good; return whether it cannot write them now.

    Root without the right to mount, as in most containers, has them read-only already.
    """
    if os.getuid() != 0:
        return True
    with suppress(OSError):
        _mount_read_only([path for path in Path(_PROC).iterdir() if _is_setting(path)])
    return not any(os.access(path, os.W_OK) for path in _TELLING) and not _mounts_elsewhere()


def _is_setting(path: Path) -> bool:
    return not path.name.isdigit() and not path.is_symlink()


def _mount_read_only(paths: list[Path]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_NEW_MOUNTS))
    # What the machine unmounts is unmounted here, too; what it mounts below /proc does not come here.
    _check(libc.mount(b"none", b"/", None, _RECURSIVE | _SLAVE, None))
    _check(libc.mount(b"none", os.fsencode(_PROC), None, _RECURSIVE | _PRIVATE, None))
    for point in _mounts_elsewhere():  # a rule for a path holds for all mounts of its files
        _check(libc.umount2(os.fsencode(point), _DETACH))
    for path in map(os.fsencode, paths):
        with suppress(OSError):  # it is gone
            _check(libc.mount(path, path, None, _BIND, None))  # without what is mounted below it
            _check(libc.mount(None, path, None, _BIND | _REMOUNT | _READ_ONLY, None))


def _mounts_elsewhere() -> list[str]:
    """Return where the files of processes are mounted outside of ``/proc``: in another root, for example."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")  # a space is \\040
        if after.split()[0] == "proc" and point != _PROC and not point.startswith(f"{_PROC}/"):
            points.append(point)
    return points


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
