"""Files that nobody has to open, and who did: by the kernel's own notices, whoever opens them and by whatever call."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from mutants.values import Aims

_OPENED, _MODIFIED, _MOVED, _CREATED, _DELETED, _ATTRIBUTES = 0x20, 0x2, 0xC0, 0x100, 0x200, 0x4
_IS_FOLDER = 0x40000000
_CHANGES = _MODIFIED | _MOVED | _CREATED | _DELETED | _ATTRIBUTES
_EVENT = struct.Struct("iIII")


class Ground:
    """A folder with a model file, and canaries beside it and above it.

    Attributes:
        model: Where mutants are written.
        aims: What they try to have opened.
    """

    def __init__(self, root: Path) -> None:
        folder = root / "models"
        folder.mkdir(parents=True)
        self.model = folder / "mutant"
        self.model.write_bytes(b"")
        self._canaries = [root / "secret", folder / "weights.bin"]
        for canary in self._canaries:
            canary.write_bytes(b"\1\2\3\4" * 4096)
        os.mkfifo(folder / "pipe")
        self.aims = Aims(
            (
                *("weights.bin", "./weights.bin", "../secret", str(root / "secret"), "pipe", ".", ""),
                *("/etc/hostname", "/proc/self/environ", "/dev/zero", "../../../../../../../../etc/passwd"),
                *("mutant", "new-file", "weights.bin\0.txt"),
            )
        )
        self._folders = {folder: self.model.name, root: folder.name}

    def watch(self) -> Watch:
        """Watch it for the time of a `with` block."""
        return Watch(self._folders)


class Watch:
    """Notes what is opened or changed in some folders, but for one name in each that may be opened."""

    def __init__(self, folders: dict[Path, str]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._folders = folders
        self._descriptor = -1
        self._watched: dict[int, tuple[Path, str]] = {}

    def __enter__(self) -> Self:
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        for folder, may_open in self._folders.items():
            number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _OPENED | _CHANGES)
            assert number >= 0, os.strerror(ctypes.get_errno())
            self._watched[number] = (folder, may_open)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def events(self) -> list[str]:
        """Return what happened since the last call and should not have: words and paths."""
        noted = []
        try:
            data = os.read(self._descriptor, 1 << 20)
        except BlockingIOError:
            return []
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
            at += _EVENT.size + length
            folder, may_open = self._watched[number]
            if mask & _CHANGES or (name not in ("", may_open) and not mask & _IS_FOLDER):
                noted.append(f"{'changed' if mask & _CHANGES else 'opened'} {folder / name}")
        return noted
