"""Handlers that reach out of their child; None where that was refused."""

import contextlib
import ctypes
import os
import platform
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunefarm_tuning.process import seccomp
from tunefarm_tuning.process.sandbox import Access, enter, give_up_programs, sandbox_order

_CLONE = {"x86_64": 56}.get(platform.machine(), 220)
_FOR_PARENT = 0x8000
_NEW_PROCESS_NUMBERS, _NEW_MOUNTS, _PRIVATE_BELOW = 0x20000000, 0x00020000, 0x44000


def read(params: dict[str, Any]) -> str:
    return Path(params["path"]).read_text()


def write(params: dict[str, Any]) -> str:
    Path(params["path"]).write_text("written")
    return "written"


def link(params: dict[str, Any]) -> str:
    os.link(params["source"], params["target"])
    return "linked"


def plant(params: dict[str, Any]) -> list[str]:
    """Make what may mislead whoever reads the folder; return what succeeded."""
    folder = Path(params["folder"])
    ways: dict[str, Callable[[], None]] = {
        "folder": (folder / "inner").mkdir,
        "link": lambda: (folder / "link").symlink_to("/etc/shadow"),
        "pipe": lambda: os.mkfifo(folder / "pipe"),
        "socket": lambda: os.mknod(folder / "socket", stat.S_IFSOCK | 0o600),
        "device": lambda: os.mknod(folder / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
        "disk": lambda: os.mknod(folder / "disk", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
    }
    planted = []
    for name, way in ways.items():
        with contextlib.suppress(PermissionError):
            way()
            planted.append(name)
    return planted


def fork_for_parent(_params: dict[str, Any]) -> int:
    """Start a process that is not this one's child, but its parent's."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = int(
        libc.syscall(ctypes.c_long(_CLONE), *map(ctypes.c_long, (_FOR_PARENT | signal.SIGCHLD, 0, 0, 0, 0)))
    )
    if process == 0:
        os._exit(0)
    if process < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return process


def own_cores(_params: dict[str, Any]) -> list[int]:
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    return sorted(os.sched_getaffinity(0))


def pid(_params: dict[str, Any]) -> int:
    return os.getpid()


def threads(params: dict[str, Any]) -> int:
    ran: list[int] = []
    started = [threading.Thread(target=ran.append, args=(number,)) for number in range(params["count"])]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return len(ran)


def fork(_params: dict[str, Any]) -> str:
    if (process := os.fork()) == 0:
        os._exit(0)
    os.waitpid(process, 0)
    return "forked"


def run(params: dict[str, Any]) -> int:
    return os.waitpid(os.posix_spawn(params["program"], [params["program"]], {}), 0)[1]


def give_up(_params: dict[str, Any]) -> str:
    give_up_programs()
    return "given up"


def connect(params: dict[str, Any]) -> str:
    with socket.create_connection(("127.0.0.1", params["port"]), timeout=10):
        return "connected"


def listen(_params: dict[str, Any]) -> str:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
    return "listens"


def sockets_after(params: dict[str, Any]) -> list[str]:
    seccomp.restrict(
        may_start_programs=False, sockets=seccomp.Sockets(params["sockets"]), has_gpu=params["has_gpu"]
    )
    opened = []
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM):
            opened.append(f"{family.name} stream")
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as own:
                opened.append(family.name)
                if family is socket.AF_UNIX:
                    own.bind(f"\0tunefarm-test-{os.getpid()}")
                    opened.append("bound")
                    with socket.socket(family, socket.SOCK_STREAM) as server:
                        server.bind(f"\0tunefarm-test-server-{os.getpid()}")
                        server.listen()
                    opened.append("listens")
        except PermissionError:
            continue
    with contextlib.suppress(PermissionError):
        for side in socket.socketpair():
            side.close()
        opened.append("pair")
    return opened


def sends_after(params: dict[str, Any]) -> list[str]:
    """Return what passes through an inherited socket of this machine: bytes, and open files."""
    near, far = socket.socketpair()
    seccomp.restrict(
        may_start_programs=False, sockets=seccomp.Sockets(params["sockets"]), has_gpu=params["has_gpu"]
    )
    passed = []
    with near, far:
        near.sendall(b"x")
        passed.append(far.recv(1).decode())
        with contextlib.suppress(PermissionError):
            socket.send_fds(near, [b"y"], [1])
            passed.append("open file")
    return passed


def bomb_as(params: dict[str, Any]) -> int:
    """Become a user, enter the sandbox of a child that links, and start as many processes as that lets."""
    order = sandbox_order(Access(programs=True))
    os.setresgid(params["user"], params["user"], params["user"])
    os.setresuid(params["user"], params["user"], params["user"])
    enter(order)
    processes = []
    try:
        for _ in range(10_000):
            process = os.fork()
            if process == 0:
                time.sleep(600)
                os._exit(0)
            processes.append(process)
    except OSError:
        return len(processes)
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return len(processes)


def threads_beside_a_crowd(params: dict[str, Any]) -> int:
    """Become a user who has 3,000 threads in another container; return how many threads can be started in the sandbox."""
    order, user = sandbox_order(Access()), params["user"]
    libc = ctypes.CDLL(None, use_errno=True)
    is_up, say_up = os.pipe()
    if (crowd := os.fork()) == 0:
        os.setresuid(user, user, user)
        threading.stack_size(1 << 16)
        for _ in range(3000):
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        os.write(say_up, b"u")
        time.sleep(600)
    os.read(is_up, 1)
    try:
        if libc.unshare(_NEW_PROCESS_NUMBERS | _NEW_MOUNTS) != 0:
            raise PermissionError
        if (inner := os.fork()) == 0:
            private = libc.mount(None, b"/", None, _PRIVATE_BELOW, None)
            mounted = libc.mount(b"proc", b"/proc", b"proc", 0, None)
            os.setresuid(user, user, user)
            count = 0
            with contextlib.suppress(RuntimeError):  # no thread could be started
                enter(order)
                count = threads({"count": 20})
            os._exit(count if private == mounted == 0 else 99)
        return os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
    finally:
        os.kill(crowd, signal.SIGKILL)
        os.waitpid(crowd, 0)


def enter_homeless(_params: dict[str, Any]) -> bool:
    """Enter the sandbox as a user whom nobody has named."""
    order = sandbox_order(Access())
    os.environ.pop("HOME", None)
    os.setresuid(54322, 54322, 54322)
    return enter(order).landlock > 0


def _none_if_refused(handler: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    def call(params: dict[str, Any]) -> Any:
        try:
            return handler(params)
        except PermissionError:
            return None

    return call


HANDLERS = {
    handler.__name__: _none_if_refused(handler)
    for handler in (
        read,
        write,
        link,
        plant,
        fork_for_parent,
        own_cores,
        pid,
        threads,
        fork,
        run,
        give_up,
        connect,
        listen,
        sockets_after,
        sends_after,
        bomb_as,
        threads_beside_a_crowd,
        enter_homeless,
    )
}
