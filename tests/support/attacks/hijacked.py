"""A child in which a stranger's bytes have taken over: whatever it is asked, it attacks, and reports how far it came.

The attacks call the kernel themselves, as machine code that was smuggled in would. ``ATTACK`` in the environment has their aims as JSON.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.process.sandbox import give_up_programs

AIMS: dict[str, Any] = json.loads(os.environ["ATTACK"])
PARENT = os.getppid()
MOST_PROCESSES = 300
_SLOTS = {"io_uring_setup": 425, "userfaultfd": 323, "bpf": 321, "keyctl": 250, "perf_event_open": 298}
_CLONE_NEWUSER = 0x10000000
_IN_CREATE = 0x100
_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
_WALL = 0x40000000  # also for what is no child
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _read(path: str) -> str:
    data = Path(path).read_bytes()
    return f"read {len(data)} bytes"


def _write(path: str) -> str:
    with Path(path).open("ab") as file:
        file.write(b"")
    return f"opened {Path(path).name} to write"


def _create(folder: str) -> str:
    path = Path(folder, f"planted-{os.getpid()}")
    path.write_text("planted")
    path.unlink()
    return f"created a file in {folder}"


def _parents_memory() -> str:
    class Piece(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

    buffer = ctypes.create_string_buffer(16)
    maps = Path("/proc/self/maps").read_text().split("-", 1)
    local = Piece(ctypes.addressof(buffer), 16)
    remote = Piece(int(maps[0], 16), 16)
    size = _libc.process_vm_readv(PARENT, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    # The address is its own, and may be none of the parent's: then the kernel has looked there at least.
    if size < 0 and ctypes.get_errno() != errno.EFAULT:
        _checked(size)
    return "looked into its parent's memory"


def _trace_parent() -> str:
    _checked(_libc.ptrace(_PTRACE_ATTACH, PARENT, 0, 0))
    os.waitpid(PARENT, _WALL)  # before it has stopped, it cannot be let go
    _checked(_libc.ptrace(_PTRACE_DETACH, PARENT, 0, 0))
    return "stopped its parent"


def _fork() -> str:
    if (process := os.fork()) == 0:
        os._exit(0)
    os.waitpid(process, 0)
    return "forked"


def _leave_session() -> str:
    if (process := os.fork()) == 0:
        try:
            os.setsid()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(process, 0)[1] != 0:
        raise PermissionError("setsid was refused")
    return "left the group that its parent ends"


def _run_a_program() -> str:
    process = os.posix_spawn("/bin/true", ["true"], {})
    return f"ran /bin/true ({os.waitpid(process, 0)[1]})"


def _connect() -> str:
    with socket.create_connection(("127.0.0.1", AIMS["port"]), timeout=5):
        return "connected"


def _listen() -> str:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
    return "listens"


def _open_socket(family: int, kind: int = socket.SOCK_DGRAM) -> str:
    socket.socket(family, kind, socket.IPPROTO_ICMP if kind == socket.SOCK_RAW else 0).close()
    return "opened a socket"


def _unshare() -> str:
    _checked(_libc.unshare(_CLONE_NEWUSER))
    return "has a namespace in which it is root"


def _limit_parent() -> str:
    _checked(_libc.prlimit(PARENT, 7, None, ctypes.create_string_buffer(16)))
    return "read its parent's limits"


def _bind_parent() -> str:
    os.sched_setaffinity(PARENT, os.sched_getaffinity(PARENT))
    return "chose its parent's cores"


def _slow_parent() -> str:
    os.setpriority(os.PRIO_PROCESS, PARENT, os.getpriority(os.PRIO_PROCESS, PARENT))
    return "set its parent's priority"


def _schedule_parent() -> str:
    os.sched_setscheduler(PARENT, os.sched_getscheduler(PARENT), os.sched_getparam(PARENT))
    return "set its parent's scheduler"


def _watch(folder: str) -> str:
    watch = _checked(_libc.inotify_init1(0))
    _checked(_libc.inotify_add_watch(watch, folder.encode(), _IN_CREATE))
    return "learns the names of files in the store"


def _kernel_call(name: str) -> str:
    result = _libc.syscall(ctypes.c_long(_SLOTS[name]), *([ctypes.c_long(0)] * 5))
    if result < 0 and ctypes.get_errno() in (1, 38):
        _checked(result)
    return "got to the kernel's code"


def _fork_bomb() -> str:
    count = 0
    for _ in range(MOST_PROCESSES):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        count += 1
    return f"{count} processes"


ATTACKS: dict[str, Callable[[], str]] = {
    "read the key file": lambda: _read(AIMS["key"]),
    "read the store beside its blob": lambda: _read(AIMS["beside"]),
    "list the store": lambda: f"saw {len(list(Path(AIMS['beside']).parent.iterdir()))} files",
    "change a blob": lambda: _write(AIMS["beside"]),
    "lay open the key file": lambda: str(Path(AIMS["key"]).chmod(0o644)),
    "read its parent's environment": lambda: _read(f"/proc/{PARENT}/environ"),
    "read its parent's command line": lambda: _read(f"/proc/{PARENT}/cmdline"),
    "change the program": lambda: _write(AIMS["program"]),
    "write beside the scratch folders": lambda: _create(AIMS["outside"]),
    "read its parent's memory": _parents_memory,
    "trace its parent": _trace_parent,
    "signal its parent": lambda: str(os.kill(PARENT, 0)),
    "limit its parent": _limit_parent,
    "choose its parent's cores": _bind_parent,
    "slow its parent down": _slow_parent,
    "schedule its parent": _schedule_parent,
    "fork": _fork,
    "leave its group": _leave_session,
    "run a program": _run_a_program,
    "connect": _connect,
    "listen": _listen,
    "open a socket of this machine": lambda: _open_socket(socket.AF_UNIX),
    "open a socket to the kernel": lambda: _open_socket(socket.AF_NETLINK),
    "open a raw socket": lambda: _open_socket(socket.AF_INET, socket.SOCK_RAW),
    "watch the store": lambda: _watch(str(Path(AIMS["beside"]).parent)),
    "make a namespace": _unshare,
    **{name: lambda name=name: _kernel_call(name) for name in _SLOTS},  # type: ignore[misc]
}


def _attack(_params: dict[str, Any]) -> None:
    """Raise a report: what succeeded, and why the rest did not."""
    done, refused = {}, {}
    for name, attack in ATTACKS.items():
        try:
            done[name] = attack()
        except OSError as error:
            refused[name] = type(error).__name__
    if AIMS.get("bomb"):
        try:
            done["bomb"] = _fork_bomb()
        except OSError as error:
            refused["bomb"] = type(error).__name__
    raise InvalidModelError("hijacked", done=done, refused=refused)


def _build(_params: dict[str, Any]) -> int:
    give_up_programs()
    return 1


class _Everything(dict[str, Callable[[dict[str, Any]], Any]]):
    def get(self, name: str, _default: Any = None) -> Callable[[dict[str, Any]], Any]:
        # A child that builds before it meets a device: nobody has taken it over by then.
        return _build if name == "build" else _attack


HANDLERS = _Everything()
