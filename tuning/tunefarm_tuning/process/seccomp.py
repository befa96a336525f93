"""Seccomp: a filter of the system calls that a Linux process may make, as a program for the kernel's packet filter.

The filter holds for all threads of the process, and for what they start. It refuses what no child of ours needs; a refused call fails
with EPERM, as it does for lack of rights. Of a few the arguments decide: of `clone` threads pass, and of a process's limits and cores
the own ones; and there is `socket`.

Source: Documentation/userspace-api/seccomp_filter.rst; numbers: asm/unistd_64.h (x86-64) and asm-generic/unistd.h (64-bit Arm).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass
from enum import Enum

from tunefarm_tuning.process.landlock import forbid_new_privileges

NEVER: dict[str, tuple[int | None, int | None]] = {
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # Their priorities and schedulers; of its own, too: no child has a reason.
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    # Other users, and the modes, owners and attributes of files, which Landlock does not limit.
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147),
    "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151), "setfsgid": (123, 152), "capset": (126, 91),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
    # The names of files in folders that it may not list.
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    # Parts of the kernel with a history of holes, and ways around a filter.
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "personality": (135, 92), "modify_ldt": (154, None),
    # Memory and messages shared with other processes of the user.
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semtimedop": (220, 192), "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # Namespaces and mounts.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "move_mount": (429, 429), "open_tree": (428, 428), "open_tree_attr": (467, 467), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "chroot": (161, 51),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    # The administrator's.
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "syslog": (103, 116),
    "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
}  # fmt: skip
"""System calls that no child makes: their numbers on x86-64 and 64-bit Arm; None where there is none."""

GROUPS = {"setsid": (112, 157), "setpgid": (109, 154)}
"""Its own group and session: the parent ends the group."""
PROGRAMS = {"fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281)}
SERVERS = {"bind": (49, 200), "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242)}
MEMORY_FILES = {"memfd_create": (319, 279), "memfd_secret": (447, 447)}
"""Memory that the limit on a process's address space does not count; CUDA's driver takes some."""
SOCKET_PAIRS = {"socketpair": (53, 199)}
"""Sockets of this machine in pairs: an open file that was sent into one is nowhere to be seen, see `process.disk_watch`."""
DESCRIPTOR_SENDERS = {"sendmsg": (46, 211), "sendmmsg": (307, 269)}
"""They send open files through a socket: into one that was inherited, too, whose other end the parent holds."""
_ACCEPTING = ("accept", "accept4")
_CLONE, _CLONE3, _SOCKET, _PRLIMIT, _SET_AFFINITY = (56, 220), (435, 435), (41, 198), (302, 261), (203, 122)
_SECCOMP = (317, 277)
_LAST_KNOWN = 470
"""Newer system calls do not exist for a child."""

_CLONE_THREAD, _CLONE_FOR_PARENT, _CLONE_NEW_NAMESPACE = 0x00010000, 0x00008000, 0x7E020000
_LOCAL, _INTERNET = (1,), (2, 10)  # AF_UNIX; AF_INET, AF_INET6
_STREAM, _RAW_SOCKET, _TYPE_OF_SOCKET = (
    1,
    3,
    0xF,
)  # a raw one shows root what others receive; flags are above the type
_X32 = 0x40000000
_SET_FILTER, _OF_ALL_THREADS, _IS_AVAILABLE, _RETURN_ERROR, _RETURN_ALLOW = 1, 1, 2, 0x00050000, 0x7FFF0000
_LOAD, _AND, _EQUALS, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _ARGUMENT_AT = 0, 4, (16, 24)  # low halves of the first two arguments
_ALLOW, _REFUSE, _UNKNOWN = "allow", "refuse", "unknown"
_ENDS = {
    _ALLOW: _RETURN_ALLOW,
    _REFUSE: _RETURN_ERROR | errno.EPERM,
    _UNKNOWN: _RETURN_ERROR | errno.ENOSYS,
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor's column in the tables of numbers, and the kernel's name for its system calls."""

    column: int
    audit: int


MACHINES = {"x86_64": Machine(0, 0xC000003E), "aarch64": Machine(1, 0xC00000B7)}


def is_available() -> bool:
    """Return whether this machine has filters, and this module its system calls' numbers."""
    machine = MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        return False
    action = ctypes.c_uint32(_RETURN_ERROR)
    number = ctypes.c_long(_SECCOMP[machine.column])
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(number, _IS_AVAILABLE, 0, ctypes.byref(action))) == 0


class Sockets(Enum):
    """Which sockets a process may open. None may listen."""

    NONE = "none"
    STREAMS = "streams"
    """Of the internet (IP, not the sockets of this machine), connections alone."""
    ALL = "all"
    """All of the internet; one that listened before may accept."""


def restrict(
    *, sockets: Sockets, may_start_programs: bool, may_lead_groups: bool = False, has_gpu: bool = False
) -> None:
    """Set the filter for all threads of this process. A further one can only refuse more.

    Args:
        sockets: Which sockets it may open.
        may_start_programs: Whether it may start processes, each with this filter.
        may_lead_groups: Whether these may leave its process group.
        has_gpu: Whether it may open sockets of this machine, listen on them, send open files through them and make files in
            memory, too: CUDA's driver listens on one as it starts, and passes descriptors through it.

    Raises:
        OSError: If there are no filters here, or a thread has another one.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        raise OSError(f"there is no filter for {platform.system()} on {platform.machine()}")
    code = filter_program(
        machine,
        sockets=sockets,
        may_start_programs=may_start_programs,
        may_lead_groups=may_lead_groups,
        has_gpu=has_gpu,
    )
    lines = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(lines))
    forbid_new_privileges()
    libc = ctypes.CDLL(None, use_errno=True)
    number = ctypes.c_long(_SECCOMP[machine.column])
    result = libc.syscall(number, _SET_FILTER, _OF_ALL_THREADS, ctypes.c_char_p(program))
    if result != 0:
        reason = ctypes.get_errno() if result < 0 else errno.ESRCH
        raise OSError(reason, f"the filter of system calls was refused ({os.strerror(reason)})")


def filter_program(
    machine: Machine,
    *,
    sockets: Sockets,
    may_start_programs: bool,
    may_lead_groups: bool = False,
    has_gpu: bool = False,
) -> bytes:
    """Return the filter's instructions. Jumps lead forward: by a number of instructions, or to one of the ends."""
    column = machine.column
    lines: list[tuple[int, int, int | str, int | str]] = []

    def add(code: int, value: int, if_true: int | str = 0, if_false: int | str = 0) -> None:
        lines.append((code, value, if_true, if_false))

    def add_check(
        call: tuple[int | None, int | None], *checks: tuple[int, int, int | str, int | str]
    ) -> None:
        """For one system call, run checks of its arguments that lead to an end; others skip them."""
        number = call[column]
        if number is not None:
            add(_EQUALS, number, 0, len(checks))
            lines.extend(checks)

    add(_LOAD, _MACHINE_AT)
    add(_EQUALS, machine.audit, 0, _REFUSE)
    add(_LOAD, _NUMBER_AT)
    if column == 0:
        add(_AT_LEAST, _X32, _REFUSE, 0)
    add(_AT_LEAST, _LAST_KNOWN + 1, _UNKNOWN, 0)
    passing_servers = {
        *(("bind", "listen") if has_gpu else ()),
        *(_ACCEPTING if sockets is Sockets.ALL else ()),
    }
    servers = {name: number for name, number in SERVERS.items() if name not in passing_servers}
    refused = {
        **NEVER,
        **servers,
        **({} if may_start_programs else PROGRAMS),
        **({} if may_lead_groups else GROUPS),
        **({} if has_gpu else {**MEMORY_FILES, **SOCKET_PAIRS}),
        # Looking names up takes them as well. A child with a relay hands it files, one at a time.
        **({} if has_gpu or sockets is not Sockets.NONE else DESCRIPTOR_SENDERS),
    }
    for numbers in refused.values():
        if (number := numbers[column]) is not None:
            add(_EQUALS, number, _REFUSE, 0)
    # clone3 has its flags in memory, which a filter cannot read: the C library then takes clone.
    add(_EQUALS, _CLONE3[column], _UNKNOWN, 0)
    # A process that its parent would have to reap, or one in a namespace.
    forbidden = (
        (_CLONE_FOR_PARENT | _CLONE_NEW_NAMESPACE, _REFUSE, _ALLOW)
        if may_start_programs
        else (_CLONE_THREAD, _ALLOW, _REFUSE)
    )
    add_check(_CLONE, (_LOAD, _ARGUMENT_AT[0], 0, 0), (_ANY_BIT, *forbidden))
    # Of another process it would read or set the limits, or choose the cores.
    for call in (_PRLIMIT, _SET_AFFINITY):
        add_check(call, (_LOAD, _ARGUMENT_AT[0], 0, 0), (_EQUALS, 0, _ALLOW, _REFUSE))
    families = (*(() if sockets is Sockets.NONE else _INTERNET), *(_LOCAL if has_gpu else ()))
    passing = [(_EQUALS, family, _ALLOW, 0) for family in families]
    add_check(
        _SOCKET,
        (_LOAD, _ARGUMENT_AT[1], 0, 0),
        (_AND, _TYPE_OF_SOCKET, 0, 0),
        (_EQUALS, _STREAM, 0, _REFUSE) if sockets is Sockets.STREAMS else (_EQUALS, _RAW_SOCKET, _REFUSE, 0),
        (_LOAD, _ARGUMENT_AT[0], 0, 0),
        *passing,
        (_RETURN, _ENDS[_REFUSE], 0, 0),
    )
    ends = {name: len(lines) + offset for offset, name in enumerate(_ENDS)}
    code = b""
    for number, (instruction, value, if_true, if_false) in enumerate(lines):
        jumps = [ends[jump] - number - 1 if isinstance(jump, str) else jump for jump in (if_true, if_false)]
        code += struct.pack("=HBBI", instruction, *jumps, value)
    return code + b"".join(struct.pack("=HBBI", _RETURN, 0, 0, value) for value in _ENDS.values())
