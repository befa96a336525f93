"""Errors of calls into child processes, and those that a child states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from tunefarm_tuning.core.errors import (
    ConflictError,
    DeviceLostError,
    InvalidInputError,
    InvariantError,
    NotFoundError,
    TransientError,
    TunefarmError,
    error_from_json,
)
from tunefarm_tuning.core.untrusted_text import clean_lines, is_name

_BLAME_THE_INPUT = (InvalidInputError, NotFoundError, ConflictError)
_TOOLS = frozenset({"link-failed", "compiler-failed", TransientError.default_code})
"""What may fail for now in a child itself. Others would have their caller wait for a disk or a key, for as long as it takes."""
_OF_A_LOSS = frozenset({"away", "session_ended"})
_MESSAGE, _FIELDS = 4000, 256 << 10
"""Most characters of a message, and of an error's fields as JSON."""


def stated_error(stated: Mapping[str, Any], *, may_blame_device: bool) -> TunefarmError:
    """Return the error that a child, or a device, says that it met.

    Strangers' bytes may have taken it over, and its error decides what becomes of the caller's work and device. So it may blame
    what it was given, and its device if it has one; it cannot say that a lease was lost, that the user cancelled, or that something of
    the caller's is missing. What it may not say is an error of ours. Its texts are cleaned and cut.

    Args:
        stated: As `TunefarmError.to_json`.
        may_blame_device: Whether it has a device.

    Raises:
        TypeError, ValueError, AttributeError: If it is no error.
    """
    error = error_from_json(stated)
    message, code = clean_lines(error.message[:_MESSAGE]), error.code
    if not isinstance(code, str) or not is_name(code):
        code = error.default_code
    fields = _cleaned(error.fields) if len(json.dumps(error.fields)) <= _FIELDS else {}
    if isinstance(error, DeviceLostError):
        if may_blame_device:
            told = {name: bool(value) for name, value in fields.items() if name in _OF_A_LOSS}
            return DeviceLostError(message, code=code, **told)
    elif isinstance(error, _BLAME_THE_INPUT) or (isinstance(error, TransientError) and code in _TOOLS):
        return type(error)(message, code=code, **fields)
    return InvariantError(message, code=code, **fields)


def _cleaned(value: Any) -> Any:
    """Return a JSON value with its texts cleaned."""
    if isinstance(value, str):
        return clean_lines(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean_lines(name): _cleaned(item) for name, item in value.items()}
    return value


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
