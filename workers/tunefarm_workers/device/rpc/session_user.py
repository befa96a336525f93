"""The user whose process runs sessions: another one than the agent's, where the agent may start processes of other users.

Sessions run what they are sent. Their sandbox keeps them from the agent's files; another user keeps them from these on a kernel without a
sandbox, too, and whoever gets out of a sandbox is nobody of importance. It takes root, or the capabilities in `_NEEDED`, and a Python that
the other user can read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process.sandbox import SANDBOX_VARIABLES

DEFAULT_NAME = "tunefarm-session"
"""The user that is taken if there is one."""

_NEEDED = {"CAP_CHOWN": 0, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4
_RUN_SEC = 60.0
_PROBE = """\
import importlib.util, os, sys
folder, *devices = sys.argv[1:]
try:
    missing = [name for name in ("tunefarm_workers", "tunefarm_tuning", "tvm") if importlib.util.find_spec(name) is None]
except OSError as error:
    missing = [str(error)]
closed = [path for path in (folder, *devices) if not os.access(path, os.R_OK | os.W_OK)]
print("it cannot read", *missing, *closed) if missing or closed else None
"""
_DELETE = """\
import sys
from pathlib import Path
from tunefarm_tuning.process.scratch import delete
delete(Path(sys.argv[1]))
"""
_PASSED_ON = re.compile(r"(PATH|TZ|LANG|LANGUAGE|LD_LIBRARY_PATH|(LC|CUDA|NVIDIA|TVM|OMP|PYTHON)_?[A-Z_]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUser:
    """An unprivileged user, which the agent may start processes of.

    Attributes:
        name: Its name.
        uid: Its number.
        gid: The number of its group, the only one that its processes are in.
    """

    name: str
    uid: int
    gid: int

    def options(self) -> dict[str, Any]:
        """Return what `subprocess` takes to start a process of this user, in its group alone."""
        return {"user": self.uid, "group": self.gid, "extra_groups": [], "cwd": "/"}

    def environment(self, environment: Mapping[str, str], home: Path) -> dict[str, str]:
        """Return what of an environment of the agent's is the other user's business: who may not read the agent's is not handed it."""
        passed = {
            name: text
            for name, text in environment.items()
            if _PASSED_ON.match(name) or name in SANDBOX_VARIABLES
        }
        return {**passed, "HOME": str(home), "USER": self.name, "LOGNAME": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Who runs sessions.

    Attributes:
        user: Another user than the agent's; None if sessions are the agent's.
        why: Why they are the agent's; empty if they are not.
    """

    user: SessionUser | None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as heartbeats say it."""
        own = _name_of(os.geteuid())
        if self.user is not None:
            return {"user": self.user.name, "agent": own}
        return {"user": own, "agent": own, "why": self.why}


def choose(name: str | None, *, devices: Sequence[str] = ()) -> Chosen:
    """Return who runs sessions. Call it on the agent's main thread, before others are started: they shall have no more rights than it.

    Args:
        name: The user that the settings name; None for `DEFAULT_NAME`, if it can be used.
        devices: Files of devices that sessions need to open.

    Raises:
        InvalidInputError: ``no-session-user`` if the named user cannot be used.
    """
    _clear_ambient()
    user, why = _usable(name or DEFAULT_NAME, devices)
    if user is None and why and name is not None:
        raise InvalidInputError(
            f"sessions cannot run as {name}: {why}", code="no-session-user", field="session_user"
        )
    return Chosen(user=user, why=why or "it was told to")


def device_files() -> tuple[str, ...]:
    """Return the files that the driver of this machine's NVIDIA GPUs opens in each process."""
    return tuple(str(path) for path in sorted(Path("/dev").glob("nvidia*")) if path.is_char_device())


def _usable(name: str, devices: Sequence[str]) -> tuple[SessionUser | None, str]:
    """Return the user, or why there is none; neither if it is the agent's own."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None, f"there is no user {name} on this machine"
    if entry.pw_uid == os.geteuid():
        return None, ""
    if entry.pw_uid == 0:
        return None, "sessions must not run as root"
    if missing := _missing_rights():
        return (
            None,
            f"only root, or a process with {' and '.join(missing)}, may start another user's processes",
        )
    user = SessionUser(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    with SessionFolder(user) as folder:
        problem = _problem_of(user, folder.path, devices)
    return (None, problem) if problem else (user, "")


def _missing_rights() -> list[str]:
    """Return the capabilities that this process lacks to start, own and end processes of another user."""
    held = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/self/status").read_text("ascii")
        held = int(text.split("CapEff:")[1].split()[0], 16)
    return [name for name, bit in _NEEDED.items() if not held >> bit & 1]


def _clear_ambient() -> None:
    """Have programs that this thread executes start without its capabilities, unless it is root's: a service may have given it some."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)


def _problem_of(user: SessionUser, folder: Path, devices: Sequence[str]) -> str:
    """Return why a process of the user could not serve; empty if it could."""
    try:
        answer = _run(user, [_PROBE, str(folder), *devices], home=folder)
    except (OSError, subprocess.SubprocessError) as error:
        return f"it cannot run {sys.executable} ({error})"
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or [f"code {answer.returncode}"]
        return f"it cannot run {sys.executable} ({last[0]})"
    return answer.stdout.strip()


def _run(user: SessionUser, arguments: Sequence[str], *, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of Python as the user; return what came of it.

    Raises:
        OSError: If it cannot be started.
        SubprocessError: Likewise, or if it takes too long.
    """
    return subprocess.run(
        [sys.executable, "-P", "-c", *arguments],
        env=user.environment(os.environ, home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_RUN_SEC,
        check=False,
        **user.options(),
    )


class SessionFolder:
    """A folder of the session's user, in one of the agent's in the system's folder for temporary files: the agent's own may be closed to it.

    What is in it its user deletes: another process of that user might lead the agent elsewhere. What a killed agent leaves is empty, as
    its server tidies up.
    """

    def __init__(self, user: SessionUser) -> None:
        self._user = user
        self._outer = Path(tempfile.mkdtemp(prefix="tunefarm-sessions-"))
        self._outer.chmod(0o711)
        self.path = self._outer / "sessions"
        self.path.mkdir(mode=0o700)
        os.chown(self.path, user.uid, user.gid)

    def __enter__(self) -> SessionFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete it."""
        for remove in (self.path.rmdir, self._delete_contents, self.path.rmdir, self._outer.rmdir):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                remove()

    def _delete_contents(self) -> None:
        if self.path.exists():
            _run(self._user, [_DELETE, str(self.path)], home=self.path)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
