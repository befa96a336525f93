"""A child that tries to fill the disk, file by file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from waiting import wait_until

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process import Access, ChildCrashed, ChildOutOfDisk, ChildProcess, disk_watch
from tunefarm_tuning.process import child as child_module
from tunefarm_tuning.process.model_child import model_error
from tunefarm_tuning.process.scratch import delete

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes and /proc are Linux's")

MODULE = "misbehaving_handlers"
ENV = {"PYTHONPATH": str(Path(__file__).parent / "child_handlers")}
LIMIT = 64 << 20
LONG_SEC = 60.0


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEFARM_SANDBOX_WRITE_BYTES", str(LIMIT))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    yield scratch
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture
def child(folder: Path) -> Iterator[ChildProcess]:
    with ChildProcess(MODULE, access=Access(writes=(folder,)), env=ENV) as process:
        yield process


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


@pytest.mark.parametrize("way", ["plain", "hidden", "deleted", "mapped"])
def test_a_child_cannot_fill_the_disk_with_many_files(child: ChildProcess, folder: Path, way: str) -> None:
    """No single file is above a limit. It writes at most what fits between two looks at the disk, here 50 MiB."""
    params = {"folder": str(folder), "way": way, "count": 1000, "pause_sec": 0.005}
    began = time.monotonic()
    with pytest.raises(ChildOutOfDisk, match=r"wrote .*more than 64 MiB .*TUNEFARM_SANDBOX_WRITE_BYTES"):
        child.call("write_files", params, timeout_sec=LONG_SEC)
    assert time.monotonic() - began < LONG_SEC / 2
    assert bytes_in(folder) < 500 << 20
    delete(folder)  # else they count against the next one, too
    folder.mkdir()
    assert child.call("echo", {"a": 1}, timeout_sec=LONG_SEC) == {"a": 1}  # a fresh one


def disk_that_others_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the disk finds more of it gone than the child may write."""
    looks = count()
    monkeypatch.setattr(disk_watch, "_free", lambda _: ((1 << 50) - next(looks) * 2 * LIMIT, 1 << 30))


def test_a_child_that_sends_much_while_others_fill_the_disk_goes_on(
    child: ChildProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wrote into pipes and sockets is no file, however long it lives."""
    disk_that_others_fill(monkeypatch)
    looked = []
    look = disk_watch._nameless_bytes
    monkeypatch.setattr(
        disk_watch, "_nameless_bytes", lambda session: looked.append(look(session)) or looked[-1]
    )
    child.call("write_to_nobody", {"count": 2 * LIMIT >> 20}, timeout_sec=LONG_SEC)
    wait_until(lambda: looked, "a look at its open files")
    assert child.call("echo", {"a": 1}, timeout_sec=LONG_SEC) == {"a": 1}
    assert looked[0] == 0


def test_a_child_that_lets_nobody_look_counts_by_what_it_wrote(
    child: ChildProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_watch, "_nameless_bytes", lambda _: None)
    disk_that_others_fill(monkeypatch)
    with pytest.raises(ChildOutOfDisk, match="deleted files included"):
        child.call("write_to_nobody", {"count": 2 * LIMIT >> 20, "stay": True}, timeout_sec=LONG_SEC)


@pytest.mark.parametrize(
    ("way", "lets_look", "nameless"),
    [("plain", True, 0), ("hidden", False, None), ("zombie", True, 0), ("deleted-by-thread", False, 1 << 20)],
)
def test_what_a_users_watch_sees(way: str, nameless: int | None, *, lets_look: bool) -> None:
    """Who lets nobody look has written more than any limit; shared memory is no file, and a zombie has none."""
    with ChildProcess("watched_handlers", access=None, env=ENV) as watcher:
        written, seen = watcher.call("look", {"way": way}, timeout_sec=LONG_SEC)
    assert (written < LIMIT, seen) == (lets_look, nameless)


def test_folders_cannot_be_nested_out_of_sight(child: ChildProcess, folder: Path) -> None:
    params = {"folder": str(folder), "way": "nested", "count": 100, "bytes": 1 << 19}
    with pytest.raises(ChildOutOfDisk, match="nested folders more than 64 deep"):
        child.call("write_files", params, timeout_sec=LONG_SEC)


def test_empty_files_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.statvfs(folder).f_favail == 0:
        pytest.skip("the file system does not count files")
    limits = disk_watch.WriteLimits(total_bytes=LIMIT, files=1000)
    monkeypatch.setattr(child_module, "WriteLimits", lambda **_: limits)
    params = {"folder": str(folder), "way": "empty", "count": 5000}
    with (
        ChildProcess(MODULE, access=Access(writes=(folder,)), env=ENV) as child,
        pytest.raises(ChildOutOfDisk, match="made more than 1000 files"),
    ):
        child.call("write_files", params, timeout_sec=LONG_SEC)


def test_what_was_there_before_and_what_fits_is_no_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_watch, "_CLOCK_SEC", 0.0)
    (folder / "old").write_bytes(b"x" * (80 << 20))
    time.sleep(0.1)
    params = {"folder": str(folder), "way": "plain", "count": 40, "stay": False, "pause_sec": 0.03}
    with ChildProcess(MODULE, access=Access(writes=(folder,)), env=ENV) as child:
        assert child.call("write_files", params, timeout_sec=LONG_SEC) == 40


def test_a_child_that_writes_between_two_calls_is_told_of_at_the_next(
    child: ChildProcess, folder: Path
) -> None:
    """What a stranger's code left running in a thread writes on after the answer."""
    child.call("write_later", {"folder": str(folder), "way": "plain", "count": 200}, timeout_sec=LONG_SEC)
    until = time.monotonic() + LONG_SEC
    while child.alive and time.monotonic() < until:
        time.sleep(0.05)
    with pytest.raises(ChildOutOfDisk):
        child.call("echo", {}, timeout_sec=LONG_SEC)


def test_a_model_that_fills_the_disk_is_refused_by_name() -> None:
    error = model_error(
        "compile", "compiling", ChildOutOfDisk("the compile process wrote files of more than 1 MiB")
    )
    assert (error.code, error.message) == (
        "compile-disk",
        "compiling wrote too much: the compile process wrote files of more than 1 MiB",
    )


def test_files_in_memory_are_refused() -> None:
    """They would pass by the limit of a child's memory."""
    with ChildProcess(MODULE, env=ENV) as child, pytest.raises(Exception, match="PermissionError"):
        child.call("open_memory_file", {}, timeout_sec=LONG_SEC)


@pytest.mark.parametrize("word", ["many", "0", "-1"])
def test_a_limit_that_is_none_is_refused(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEFARM_SANDBOX_WRITE_BYTES", word)
    with pytest.raises(InvalidInputError, match="TUNEFARM_SANDBOX_WRITE_BYTES must be a number of bytes"):
        ChildProcess(MODULE)


def test_a_child_without_folders_is_not_watched() -> None:
    with ChildProcess(MODULE, env=ENV) as child, pytest.raises(ChildCrashed):
        child.call("leave", {"code": 3}, timeout_sec=LONG_SEC)


def test_a_watch_that_fails_does_not_end_that_of_others(
    child: ChildProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = disk_watch.FolderWatch.excess, []

    def fail_first(watch: disk_watch.FolderWatch) -> str | None:
        if not failures:
            failures.append(watch)
            raise OSError("no /proc")
        return real(watch)

    monkeypatch.setattr(disk_watch.FolderWatch, "excess", fail_first)
    params = {"folder": str(folder), "way": "plain", "count": 1000, "pause_sec": 0.005}
    with pytest.raises(ChildOutOfDisk):
        child.call("write_files", params, timeout_sec=LONG_SEC)
    assert failures


PARKS = """
import array, os, socket, sys, tempfile
near, far = socket.socketpair()
fd, path = tempfile.mkstemp(dir=sys.argv[1])
os.write(fd, bytes(1 << 20))
os.fsync(fd)
os.unlink(path)
near.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
os.close(fd)
print("parked", flush=True)
sys.stdin.readline()
_, [(_, _, taken)], _, _ = far.recvmsg(1, socket.CMSG_SPACE(4))
print("taken", flush=True)
sys.stdin.readline()
"""


def test_deleted_files_in_a_socket_are_not_overlooked(folder: Path) -> None:
    """A process on a GPU may open sockets of its machine; what it sends into one is open nowhere, so what it wrote counts."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARKS, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "parked\n"
        assert disk_watch._nameless_bytes(process.pid) is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "taken\n"
        assert disk_watch._nameless_bytes(process.pid) == 1 << 20
        process.stdin.write("\n")
