"""Bounds what a child writes in all: the kernel limits each of its files, not their sum or their number.

A thread of the parent asks the file systems of the child's folders for their free room. Only when that has shrunk does it add up the
files, so that watching costs nothing while little is written. A file counts by its blocks on the disk, if it changed since the watch
began. A file that is deleted while it is open has no name to count by. Once a child has written more than its sum, pipes included, on a
disk that lost as much meanwhile, these are looked up among the open and mapped files of its processes; what cannot be looked up there
counts by what was written.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process.running import RunningChild
from tunefarm_tuning.process.sandbox import WRITE_BYTES

log = logging.getLogger(__name__)

_WRITE_BYTES = 16 << 30
_FILES = 1_000_000
_DEEPEST = 64
"""Folders inside each other: whoever nests more hides files where paths are too long for the parent."""
_LOOK_SEC = 0.25
_COUNT_AT_LEAST_SEC = 60.0
"""The files are added up this often even if the disk has room: somebody else may make room meanwhile."""
_STEPS = 16
"""The files are added up whenever the disk has lost such a part of the limit."""
_CLOCK_SEC = 60.0
"""How far the clock of a file server may be behind."""
_BLOCK = 512
_GROUPS = slice(2, 4)
"""Of what `_state` returns: the process group and the session."""
_ENDED = "ZX"
"""The states of what has ended: zombies, and what is being removed."""
_PATH_FIELD = 5  # of a line in /proc/PID/maps
_PARKED = "scm_fds:"
"""In ``/proc/PID/fdinfo``: how many descriptors wait in a socket of this machine to be received (Linux 5.6 and later)."""
_MEMORY = ("/dev/zero (deleted)", "/memfd:", "/SYSV", "/anon_hugepage", "/[aio]")
"""Beginnings of the paths of shared memory, which is called a deleted file."""


def write_limit() -> int:
    """Return how many bytes the files of one child may take in all, by this process's environment.

    Raises:
        InvalidInputError: ``invalid-settings``, if that is no number of bytes.
    """
    word = os.environ.get(WRITE_BYTES, "") or str(_WRITE_BYTES)
    if not word.isdecimal() or int(word) == 0:
        raise InvalidInputError(f"{WRITE_BYTES} must be a number of bytes above 0", code="invalid-settings")
    return int(word)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLimits:
    """What the files of a child may come to.

    Attributes:
        total_bytes: Their blocks on the disk.
        files: Their number, folders included.
        since: What changed before this time (Unix seconds) is not the child's.
    """

    total_bytes: int
    files: int = _FILES
    since: float = field(default_factory=time.time)


class FolderWatch:
    """Tells when a process's folders hold more than they may. Concurrency: one caller.

    Args:
        folders: What the process may write; files may be among them.
        session: The id of the process, which leads a session or group; its other processes count as well.
    """

    def __init__(self, folders: Sequence[Path], session: int, limits: WriteLimits) -> None:
        self._folders = tuple(folders)
        self._session = session
        self._limits = limits
        self._at_start = self._most_free = [_free(folder) for folder in folders]
        self._counted_at = time.monotonic()

    def excess(self) -> str | None:
        """Return how the process has gone past its limits; None if it has not. Call it several times a second."""
        return self._count() if self._has_shrunk() else None

    def _has_shrunk(self) -> bool:
        """Return whether the files have to be added up now."""
        free = [_free(folder) for folder in self._folders]
        steps = (self._limits.total_bytes // _STEPS, self._limits.files // _STEPS)
        has_shrunk = time.monotonic() - self._counted_at > _COUNT_AT_LEAST_SEC or any(
            most[0] - now[0] > steps[0] or most[1] - now[1] > steps[1]
            for most, now in zip(self._most_free, free, strict=True)
        )
        if has_shrunk:
            self._most_free, self._counted_at = free, time.monotonic()
        else:
            pairs = zip(self._most_free, free, strict=True)
            self._most_free = [(max(most[0], now[0]), max(most[1], now[1])) for most, now in pairs]
        return has_shrunk

    def _count(self) -> str | None:
        limits = self._limits
        most = f"{limits.total_bytes >> 20} MiB ({WRITE_BYTES})"
        size, inodes = 0, set[tuple[int, int]]()
        try:
            for folder in self._folders:
                for state in _changed(folder, limits.since - _CLOCK_SEC):
                    if (inode := (state.st_dev, state.st_ino)) in inodes:
                        continue
                    inodes.add(inode)
                    size += state.st_blocks * _BLOCK
                    if size > limits.total_bytes:
                        return f"wrote files of more than {most}"
                    if len(inodes) > limits.files:
                        return f"made more than {limits.files} files"
        except _TooDeep:
            return f"nested folders more than {_DEEPEST} deep"
        starts = zip(self._at_start, self._folders, strict=True)
        lost = max(at_start[0] - _free(folder)[0] for at_start, folder in starts)
        if lost > limits.total_bytes and (written := _written(self._session)) > limits.total_bytes:
            nameless = _nameless_bytes(self._session)
            if size + (written if nameless is None else nameless) > limits.total_bytes:
                return f"wrote more than {most}, deleted files included, while the disk lost as much"
        return None


class DiskWatch:
    """The watch over the children of this process. Concurrency: from any thread.

    A child that goes past its limits is killed, and its `RunningChild.overfull` says why.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Begin without children and thread: a process that was forked has neither."""
        self._changed = threading.Condition()
        self._watched: list[tuple[RunningChild, FolderWatch]] = []
        self._thread: threading.Thread | None = None

    def add(self, child: RunningChild, folders: Sequence[Path], limits: WriteLimits) -> None:
        """Watch what `child` writes into `folders`, until it has ended."""
        watch = FolderWatch(folders, child.pid, limits)
        with self._changed:
            self._watched.append((child, watch))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="disk-watch", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._watched = [(child, watch) for child, watch in self._watched if not child.ended]
                while not self._watched:
                    self._changed.wait()
                all_watched = list(self._watched)
            for child, watch in all_watched:
                try:
                    excess = watch.excess()
                except Exception:  # the others are still to be watched
                    log.exception("the files of a child could not be added up")
                    continue
                if excess is not None:
                    child.overfull = excess
                    child.kill()
            time.sleep(_LOOK_SEC)


def _free(folder: Path) -> tuple[int, int]:
    """Return the free bytes and files of a folder's file system; a file stands for the folder that it is in."""
    for path in (folder, folder.parent):
        with contextlib.suppress(OSError):
            state = os.statvfs(path)
            return state.f_bavail * state.f_frsize, state.f_favail
    return 0, 0


class _TooDeep(Exception):  # noqa: N818  (an outcome, caught in `FolderWatch`)
    """Folders are nested deeper than a watch follows them."""


def _changed(path: Path, since: float) -> Iterator[os.stat_result]:
    """Yield the states of a file, or of all that is in a folder, that changed since a time (Unix seconds)."""
    left = [(str(path), 0)]
    while left:
        current, depth = left.pop()
        if depth > _DEEPEST:
            raise _TooDeep
        with contextlib.suppress(OSError):
            state = os.lstat(current)
            if state.st_ctime >= since:
                yield state
            if not stat.S_ISDIR(state.st_mode):
                continue
            if state.st_mode & 0o700 != 0o700:  # which a child may make, and then hide files in
                os.chmod(current, 0o700)  # noqa: PTH101
            with os.scandir(current) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append((entry.path, depth + 1))
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        file_state = entry.stat(follow_symlinks=False)
                        if file_state.st_ctime >= since:
                            yield file_state


def _written(session: int) -> float:
    """Return the bytes that the processes of a session, or of a group, have written; what their ended children wrote is part of it.

    Infinity, if one of them lets nobody look.
    """
    total = 0
    for process in _processes(session):
        try:
            lines = (process / "io").read_text().splitlines()
        except OSError:
            if any(_living_threads(process)):
                return math.inf
            continue
        counts = {name: int(count) for name, _, count in (line.partition(": ") for line in lines)}
        # By calls, and by mapped memory: neither counts all, and what is counted by both is the same bytes.
        total += max(counts["wchar"], counts["write_bytes"])
    return total


def _processes(session: int) -> Iterator[Path]:
    """Yield the folders in ``/proc`` of the processes of a session, or of a group."""
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and str(session) in _state(Path(entry.path))[_GROUPS]:
                yield Path(entry.path)


def _state(process: Path) -> list[str]:
    """Return what the kernel says of a process or thread, from its state on: the fields after the command's name, which may be anything."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _living_threads(process: Path) -> Iterator[Path]:
    """Yield the folders in ``/proc`` of the threads of a process that have not ended; the first may have, while others go on."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.scandir(process / "task"):
            if _is_living(folder := Path("/proc", thread.name)):
                yield folder


def _is_living(thread: Path) -> bool:
    try:
        return _state(thread)[0] not in _ENDED
    except OSError:
        return False


def _nameless_bytes(session: int) -> int | None:
    """Return what the deleted files take that processes of a session have open or mapped; None if that is not to be seen.

    It is not, if descriptors were sent into one of their sockets and nobody took them out.
    """
    sizes: dict[tuple[int, int], int] = {}
    for thread in (thread for process in _processes(session) for thread in _living_threads(process)):
        try:
            if _has_parked_descriptors(thread):
                return None
            for link in (*_descriptors(thread), *_deleted_mappings(thread)):
                with contextlib.suppress(FileNotFoundError):
                    state = link.stat()
                    if stat.S_ISREG(state.st_mode) and state.st_nlink == 0:
                        sizes[state.st_dev, state.st_ino] = state.st_blocks * _BLOCK
        except OSError:  # it has ended, or lets nobody look; mapped files only an administrator may look up
            if _is_living(thread):
                return None
    return sum(sizes.values())


def _descriptors(thread: Path) -> Iterator[Path]:
    """Yield the open files of a thread, which may have some of its own."""
    yield from (Path(link.path) for link in os.scandir(thread / "fd"))


def _has_parked_descriptors(thread: Path) -> bool:
    for entry in os.scandir(thread / "fdinfo"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(entry.path).read_text().splitlines():
                if line.startswith(_PARKED) and int(line.removeprefix(_PARKED)) > 0:
                    return True
    return False


def _deleted_mappings(thread: Path) -> Iterator[Path]:
    for line in (thread / "maps").read_text().splitlines():
        if line.endswith(" (deleted)") and not line.split(maxsplit=_PATH_FIELD)[-1].startswith(_MEMORY):
            begin, _, end = line.split(maxsplit=1)[0].partition("-")
            yield thread / "map_files" / f"{int(begin, 16):x}-{int(end, 16):x}"


DISK_WATCH = DiskWatch()
"""That of this process."""
