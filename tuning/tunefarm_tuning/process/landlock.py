"""Landlock: limits of a Linux process on files, TCP and signals, which it sets itself without any privilege.

A limit holds for the calling thread and for all threads and processes that it starts from then on, and cannot be lifted. Kernels since 5.13
have Landlock; later ones limit more, which the version of its interface (`abi`) tells.

Source: Documentation/userspace-api/landlock.rst and include/uapi/linux/landlock.h (Linux 6.18).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CHANGE_FOLDERS = (
    0x1FF0  # bits 4 to 12: make and remove files, folders, symbolic links, pipes, sockets, devices
)
_MAKE_FILES = 0x01B0  # of these, files and folders alone
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

READ = READ_FILE | READ_DIR
OVERWRITE = WRITE_FILE | _TRUNCATE
CHANGE = READ | WRITE_FILE | _MAKE_FILES | _REFER | _TRUNCATE
"""Whoever reads the folder afterwards meets no symbolic link to what the writer may not read, no pipe to wait for, no device."""
USE_DEVICE = READ | WRITE_FILE | _IOCTL_DEV
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
"""Rights that a single file can have."""

_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_ASK_VERSION, _PATH_BENEATH, _NET_PORT = 1, 1, 2
_PR_SET_NO_NEW_PRIVS = 38

ABI_OF_ALL = 6
"""The interface that has every limit used here: files (1), links (2), truncation (3), TCP (4), devices (5), signals (6)."""


def abi() -> int:
    """Return the version of the kernel's interface; 0 where it has none, or is not Linux."""
    if sys.platform != "linux":  # whose numbers of system calls mean something else
        return 0
    try:
        return max(0, _syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))
    except OSError:
        return 0


def restrict(rules: Iterable[tuple[Path | str, int]], *, may_connect: bool, port: int | None = None) -> int:
    """Limit the calling thread to these files and folders with their contents, and its signals to processes that are limited with it.

    Args:
        rules: Paths and their rights. What does not exist is left out.
        may_connect: Whether it may open TCP connections. It may listen in no case.
        port: The one port that it may connect to all the same, of any host: there are no limits by host.

    Returns:
        The version of the interface: an older one than `ABI_OF_ALL` limits less.

    Raises:
        OSError: If the kernel has no Landlock, or refuses.
    """
    version = abi()
    if version == 0:
        raise OSError("the kernel has no Landlock")
    files = EXECUTE | WRITE_FILE | READ | _CHANGE_FOLDERS
    files |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    files |= _IOCTL_DEV if version >= 5 else 0
    tcp = (_BIND_TCP | (0 if may_connect else _CONNECT_TCP)) if version >= 4 else 0
    scopes = (_ABSTRACT_SOCKETS | _SIGNALS) if version >= 6 else 0
    handled = struct.pack("=QQQ", files, tcp, scopes)
    ruleset = _syscall(_CREATE_RULESET, handled, len(handled), 0)
    try:
        for path, rights in rules:
            _add(ruleset, path, rights & files)
        if port is not None and tcp & _CONNECT_TCP:
            _syscall(_ADD_RULE, ruleset, _NET_PORT, struct.pack("=QQ", _CONNECT_TCP, port), 0)
        forbid_new_privileges()
        _syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def forbid_new_privileges() -> None:
    """Let no program that this process starts have more rights than itself (``setuid``): the kernel asks for it before a limit."""
    _check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _add(ruleset: int, path: Path | str, rights: int) -> None:
    """Add a rule for a path, if it exists.

    A rule is about an inode. The kernel makes a new one for what is in ``/proc`` whenever it has forgotten the old one, as it does when
    memory is short: the process could then not read its own ``/proc/self`` any more. So these stay open as long as the process lives.
    """
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    stays_open = str(path).startswith("/proc/")
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _OF_FILES
        if rights:
            _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, beneath), 0)
    except BaseException:
        stays_open = False
        raise
    finally:
        if not stays_open:
            os.close(beneath)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: bytes | int | None) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return _check(_libc().syscall(ctypes.c_long(number), *words))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
