"""The sandbox of a child: what it may touch from before its first request on.

A child has imported its module by then, and has one thread, as Landlock limits the thread that asks for it and what that starts. It
reads the interpreter, its packages, the system's libraries and facts about the machine. Everything else is in its `Access`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Self

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.process import kernel_settings, landlock, seccomp
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.limits import lower

VARIABLE = "TUNEFARM_SANDBOX"
FURTHER_READS = "TUNEFARM_SANDBOX_READ"
WRITE_BYTES = "TUNEFARM_SANDBOX_WRITE_BYTES"
SANDBOX_VARIABLES = (VARIABLE, FURTHER_READS, WRITE_BYTES)

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store", "/gnu/store")
_FACTS = (
    *(
        "/etc/ld.so.cache",
        "/etc/ld.so.preload",
        "/etc/localtime",
        "/etc/timezone",
        "/etc/passwd",
        "/etc/hosts",
    ),
    *("/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services"),
    *(
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/loadavg",
        "/proc/version",
        "/proc/sys",
    ),
    *("/proc/filesystems", "/proc/device-tree", "/sys/devices", "/sys/class", "/sys/bus", "/sys/fs/cgroup"),
    *("/sys/kernel/mm", "/sys/firmware/devicetree"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPU_FACTS = ("/proc/driver", "/proc/devices", "/proc/modules", "/sys/module")
_GPU_DEVICES = ("nvidia*", "dri", "nvidia-caps", "dxg", "nvhost*", "nvmap", "nvgpu", "nvsciipc")
_USUAL_DEVICES = (
    *(f"/dev/nvidia{name}" for name in ("ctl", "-uvm", "-uvm-tools", "-modeset", "-caps", *range(16))),
    *("/dev/dri", "/dev/dxg", "/dev/nvmap"),
)
_GPU_SIGNS = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap")
"""Of a graphics card's driver, of Windows' Linux, of a Jetson."""
_TOOLS = ("ld", "cc", "gcc", "clang", "c++", "g++", "ld.lld", "nvcc")
_OPEN_FILES = 4096
_MORE_PROCESSES = 2048
"""Room for what the user's other processes start meanwhile: the kernel counts them all, threads included."""
_MOST_PROCESSES = 1 << 22  # of a kernel


class SandboxMode(StrEnum):
    """What to do where the kernel has no sandbox, or an old one."""

    REQUIRED = "required"
    """A child does not start."""
    BEST_EFFORT = "best-effort"
    """A child starts with what there is."""
    OFF = "off"
    """No child has a sandbox, not even where the kernel has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a child may touch besides itself and the system: by default nothing.

    Attributes:
        reads: Files, and folders with their contents. What does not exist when the child starts is left out.
        writes: The same, to read, write and delete.
        device: The device that it may talk to, through a relay (see `process.relay`) that starts with it.
        network: Whether it may open connections to anywhere, as a relay may. It may listen in no case.
        programs: Whether it may start programs (a linker), of the system and of the environment.
        gpu: Whether it may use GPUs.
        children: Whether it starts children with sandboxes of their own (`ChildProcess`), so that it may lead process groups. They see
            nothing of themselves in ``/proc``, as rules cannot name it before they exist: with `gpu`, as CUDA looks and writes there, it
            and they read and write what is in ``/proc`` of all processes of the user, but no settings of the kernel.
    """

    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    device: DeviceAddress | None = None
    network: bool = False
    programs: bool = False
    gpu: bool = False
    children: bool = False

    def to_json(self) -> dict[str, Any]:
        paths = {name: [str(path.absolute()) for path in getattr(self, name)] for name in ("reads", "writes")}
        return {**asdict(self), **paths}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        paths = {name: tuple(map(Path, fields[name])) for name in ("reads", "writes")}
        device = None if fields["device"] is None else DeviceAddress.from_json(fields["device"])
        return cls(**{**fields, **paths, "device": device})


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxState(JsonFields):
    """What holds, or could hold, for a child.

    Attributes:
        mode: What was asked for.
        landlock: The version of the kernel's interface; 0 for none.
        seccomp: Whether system calls are filtered.
        free_threads: Threads that Landlock does not hold for, as libraries started them first.
    """

    mode: SandboxMode
    landlock: int
    seccomp: bool
    free_threads: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return self.landlock >= landlock.ABI_OF_ALL and self.seccomp and not self.free_threads

    @property
    def text(self) -> str:
        """A few words for people."""
        files = f"Landlock {self.landlock}" if self.landlock else "no Landlock"
        calls = "a filter of system calls" if self.seccomp else "no filter of system calls"
        return f"{files}, {calls}"

    @property
    def summary(self) -> str:
        """What holds, in one line for people."""
        if self.mode is SandboxMode.OFF:
            return "off: a session can do whatever the agent's user can"
        return f"{'whole' if self.is_whole else 'partial'} ({self.mode}): {self.text}"


def sandbox_mode(environment: Mapping[str, str] = os.environ) -> SandboxMode:
    """Return what the environment asks for.

    Raises:
        InvalidInputError: If that is none of the modes.
    """
    word = environment.get(VARIABLE, "") or SandboxMode.BEST_EFFORT
    try:
        return SandboxMode(word)
    except ValueError:
        modes = ", ".join(SandboxMode)
        raise InvalidInputError(f"{VARIABLE} must be one of {modes}", code="invalid-settings") from None


@cache
def available_sandbox() -> tuple[int, bool]:
    """Return what this kernel has: the version of Landlock, and whether there are filters. Nothing is limited by asking."""
    return landlock.abi(), seccomp.is_available()


def sandbox_state() -> SandboxState:
    """Return what a child of this process would get."""
    mode = sandbox_mode()
    version, filters = (0, False) if mode is SandboxMode.OFF else available_sandbox()
    return SandboxState(mode=mode, landlock=version, seccomp=filters)


def check_sandbox() -> None:
    """Check, before any child is needed, that children of this process can start.

    Raises:
        InvalidInputError: ``no-sandbox``, if the whole sandbox is required and the kernel lacks a part; as `sandbox_mode`.
    """
    state = sandbox_state()
    if state.mode is SandboxMode.REQUIRED and not state.is_whole:
        raise _no_sandbox(state.text)


def _no_sandbox(missing: str) -> InvalidInputError:
    return InvalidInputError(
        f"{VARIABLE}=required, but this machine cannot give the whole sandbox ({missing}): use Linux 6.12 or newer, or {VARIABLE}=best-effort",
        code="no-sandbox",
    )


def sandbox_order(access: Access | None) -> str:
    """Return, as text for `enter` (a command-line argument), what a child shall do by this process's environment.

    `access` None is for children that read nothing of a stranger's: they have no sandbox.

    Raises:
        InvalidInputError: As `sandbox_mode`.
    """
    mode = SandboxMode.OFF if access is None else sandbox_mode()
    further = _absolute(os.environ.get(FURTHER_READS, ""))
    allowed = (access or Access()).to_json()
    return json.dumps({"mode": mode, "access": allowed, "further": further}, separators=(",", ":"))


def relay_order(order: str) -> tuple[DeviceAddress, str] | None:
    """Return the device of a child that `order` is for, and its relay's own order; None if it may talk to no device."""
    asked = json.loads(order)
    device = Access.from_json(asked["access"]).device
    if device is None:
        return None
    return device, json.dumps({**asked, "access": Access(network=True).to_json()})


def enter(order: str, relay_port: int | None = None) -> SandboxState:
    """Limit this process. It must have one thread, and have read nothing of a stranger's.

    Args:
        order: What `sandbox_order` returned.
        relay_port: The one port that it may connect to, if it may not connect to anywhere.

    Raises:
        InvalidInputError: ``no-sandbox``, if the mode is required and a part of it is missing.
    """
    global _is_filtered
    asked = json.loads(order)
    mode, access = SandboxMode(asked["mode"]), Access.from_json(asked["access"])
    if mode is SandboxMode.OFF:
        return SandboxState(mode=mode, landlock=0, seccomp=False)
    _limit_counts()
    # Inside of another sandbox it may look no further.
    free_threads = Path("/proc/self/task").stat().st_nlink - 3 if sys.platform == "linux" else 0
    missing = [f"{free_threads} threads were started before it"] if free_threads else []
    version, filters = 0, False
    try:
        version = landlock.restrict(
            _rules(
                access,
                asked["further"],
                children_on_gpu=access.children and access.gpu and _has_gpu() and kernel_settings.protect(),
            ),
            may_connect=access.network,
            port=relay_port,
        )
        if version < landlock.ABI_OF_ALL:
            missing.append(f"Landlock {version} limits less than Landlock {landlock.ABI_OF_ALL}")
    except OSError as error:
        missing.append(f"Landlock: {error.strerror or error}")
    try:
        seccomp.restrict(
            sockets=_sockets(access, relay_port),
            may_start_programs=access.programs,
            may_lead_groups=access.children,
            has_gpu=access.gpu and _has_gpu(),
        )
        filters = _is_filtered = True
    except OSError as error:
        missing.append(f"seccomp: {error.strerror or error}")
    if missing and mode is SandboxMode.REQUIRED:
        raise _no_sandbox("; ".join(missing))
    return SandboxState(mode=mode, landlock=version, seccomp=filters, free_threads=free_threads)


def _sockets(access: Access, relay_port: int | None) -> seccomp.Sockets:
    if access.network:
        return seccomp.Sockets.ALL
    return seccomp.Sockets.NONE if relay_port is None else seccomp.Sockets.STREAMS


def _has_gpu() -> bool:
    return any(Path(path).exists() for path in _GPU_SIGNS)


_is_filtered = False


def give_up_programs() -> None:
    """Let this process start no more processes: a child that links first, then connects to a device, calls it in between."""
    if _is_filtered:
        seccomp.restrict(sockets=seccomp.Sockets.ALL, may_start_programs=False)


def _limit_counts() -> None:
    lower(resource.RLIMIT_NOFILE, _OPEN_FILES, _OPEN_FILES)
    if sys.platform == "linux" and os.getuid() != 0:  # root's are not limited
        try:
            most = _processes_of_user() + _MORE_PROCESSES
        except PermissionError:  # inside of another sandbox, which has limited them
            return
        # The kernel also counts those of the same user number in other containers, which are not to be seen here.
        while most < _MOST_PROCESSES and not _could_start_one_within(most - _MORE_PROCESSES // 2):
            most *= 2
        lower(resource.RLIMIT_NPROC, most, most)


def _could_start_one_within(most: int) -> bool:
    _, ceiling = resource.getrlimit(resource.RLIMIT_NPROC)
    soft = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, ceiling))
    try:
        os.posix_spawn(
            "/", ["/"], {}
        )  # which is no program: the process ends before there is anything to wait for
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _processes_of_user() -> int:
    """Return the number of threads of this user's processes."""
    user, count = os.getuid(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                status = Path(entry.path, "task").stat()
            except OSError:
                continue
            count += status.st_nlink - 2 if status.st_uid == user else 0
    return count


def _rules(
    access: Access, further: Sequence[str], *, children_on_gpu: bool = False
) -> Iterator[tuple[Path | str, int]]:
    execute = landlock.EXECUTE if access.programs else 0
    for path in (*_SYSTEM, *_interpreter(), *further):
        yield path, landlock.READ | execute
    if access.programs:
        for path in _not_too_much([*_absolute(os.environ.get("PATH", "")), *_toolchains()]):
            yield path, landlock.READ | execute
    for path in _FACTS:
        yield path, landlock.READ
    if access.gpu and _has_gpu():
        # CUDA's driver does not start where it cannot name its threads, which is done by writing to a file of each.
        yield "/proc/self/task", landlock.READ | landlock.OVERWRITE
        if access.children:
            yield "/proc", landlock.READ | (landlock.OVERWRITE if children_on_gpu else 0)
    for path in _DEVICES:
        yield path, landlock.READ | landlock.WRITE_FILE
    if access.gpu:
        yield from ((path, landlock.READ) for path in _GPU_FACTS)
        listed = (str(path) for pattern in _GPU_DEVICES for path in Path("/dev").glob(pattern))
        # Inside of another sandbox nothing is listed there.
        yield from ((path, landlock.USE_DEVICE) for path in {*listed, *_USUAL_DEVICES})
    yield from ((path, landlock.READ) for path in access.reads)
    yield from ((path, landlock.CHANGE) for path in access.writes)


def _interpreter() -> Iterator[str]:
    """Yield the folders of Python and its packages, and of libraries that the environment names."""
    variables = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
    named = [folder for name in variables for folder in _absolute(os.environ.get(name, ""))]
    ours = str(Path(__file__).parents[2])  # of an editable installation, it need not be on the path
    yield from _not_too_much([sys.prefix, sys.base_prefix, sys.exec_prefix, ours, *sys.path, *named])


def _toolchains() -> Iterator[str]:
    """Yield the folders of linkers and compilers, wherever links on the PATH lead: their programs, libraries and settings."""
    for name in _TOOLS:
        if (path := shutil.which(name)) is not None:
            folder = Path(path).resolve().parent
            yield str(folder.parent if folder.name == "bin" else folder)


def _not_too_much(folders: Iterable[str]) -> Iterator[str]:
    """Yield each absolute path once: paths of programs and modules never mean the user's whole home, or all temporary files."""
    too_much = {os.path.realpath(os.path.expanduser(path)) for path in ("/", "/tmp", "~")}  # noqa: PTH111, S108  (there may be no home)
    for folder in dict.fromkeys(folders):
        if Path(folder).is_absolute() and os.path.realpath(folder) not in too_much:
            yield folder


def _absolute(paths: str) -> list[str]:
    return [path for path in paths.split(os.pathsep) if Path(path).is_absolute()]
