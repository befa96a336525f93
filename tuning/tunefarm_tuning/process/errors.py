"""Errors of calls into child processes."""

from __future__ import annotations

from typing import ClassVar

from tunefarm_tuning.core.errors import TunefarmError


class ChildFailed(TunefarmError):  # noqa: N818  (its subclasses say what happened, without a suffix)
    """The child gave no answer. The call may be repeated in a new child.

    Attributes:
        detail: The last lines of the child's standard error, cleaned; empty if there are none.
    """

    default_code: ClassVar[str] = "child-failed"

    def __init__(self, message: str, *, code: str | None = None, detail: str = "", **fields: object) -> None:
        super().__init__(message, code=code, detail=detail, **fields)
        self.detail = detail


class ChildCrashed(ChildFailed):
    """The child died of a signal, exited early, or sent an answer that cannot be read.

    Attributes:
        signal_name: ``"SIGSEGV"``; None if it was no signal.
        exit_code: The exit code; None if it was a signal or is unknown.
    """

    default_code = "child-crashed"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: str = "",
        signal_name: str | None = None,
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message, code=code, detail=detail, signal_name=signal_name, exit_code=exit_code)
        self.signal_name = signal_name
        self.exit_code = exit_code


class ChildClosed(ChildCrashed):
    """`ChildProcess.close` ended the child while, or before, it was called (a cancelled job, say)."""

    default_code = "child-closed"


class ChildTimedOut(ChildFailed):
    """The child exceeded its time (wall-clock, or its limit of CPU seconds) and was killed."""

    default_code = "child-timed-out"


class ChildOutOfMemory(ChildFailed):
    """The child asked for more memory than it may have, or the system killed it (most often for memory)."""

    default_code = "child-out-of-memory"


class ChildOutOfDisk(ChildFailed):
    """The child wrote more, in all its files together, than it may (see `disk_watch`), and was killed."""

    default_code = "child-out-of-disk"
