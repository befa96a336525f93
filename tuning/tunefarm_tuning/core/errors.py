"""The error tree: a class says what the caller should do next, a code says what happened.

::

    TunefarmError
    ├── InvalidInputError      fix the input, then try again
    │   ├── InvalidModelError  the uploaded network cannot be used
    │   ├── UnknownTargetError the target's name means nothing to us
    │   └── InvalidRecordError a tuning record cannot be read
    ├── NotFoundError          look elsewhere: there is no such thing
    ├── ConflictError          look at the state first: it forbids this now
    ├── TransientError         wait, then try again
    │   └── DeviceLostError    the device went away: measure elsewhere
    ├── LeaseLostError         stop: somebody else holds this now, write nothing
    ├── CancelledError         stop: the user asked for it
    └── InvariantError         our bug: report it

HTTP statuses, exit codes and retry policies are tables at the edges, not attributes here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class TunefarmError(Exception):
    """Base class of tunefarm's errors.

    Args:
        message: One or two sentences: subject, limit, remedy. Text from users must have passed `untrusted_text.clean`.
        code: Stable kebab-case name of the problem (``"unsupported-operator"``); the class's `default_code` by default.
        fields: JSON-able facts for programs (``operator="Loop"``, ``limit_bytes=1024``).
    """

    default_code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, code: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.fields: dict[str, Any] = fields

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object from which `error_from_json` makes an equal error."""
        kind = type(self).__name__
        return {"kind": kind, "code": self.code, "message": self.message, "fields": self.fields}


class InvalidInputError(TunefarmError):
    """The input is wrong: fix it, then try again."""

    default_code = "invalid-input"


class InvalidModelError(InvalidInputError):
    """The uploaded network cannot be used."""

    default_code = "invalid-model"


class UnknownTargetError(InvalidInputError):
    """The target's name is unknown; the message lists similar names."""

    default_code = "unknown-target"


class InvalidRecordError(InvalidInputError):
    """A tuning record cannot be read."""

    default_code = "invalid-record"


class NotFoundError(TunefarmError):
    """The object does not exist."""

    default_code = "not-found"


class ConflictError(TunefarmError):
    """The present state forbids this."""

    default_code = "conflict"


class TransientError(TunefarmError):
    """Something outside failed for now: wait, then try again."""

    default_code = "unavailable"


class DeviceLostError(TransientError):
    """The device went away: measure elsewhere.

    Its field ``away`` says that the device cannot be reached, so nothing is known to be wrong with it; ``session_ended``, that a session
    ended in the middle, for whatever reason.
    """

    default_code = "device-lost"


BROKE_PROTOCOL = "device-broke-protocol"
"""Error code if a device sent something else than answers: it, or whoever has taken it over, tries to get into its clients."""


def broke_protocol(device: str, how: str) -> DeviceLostError:
    """Return the error for a device that sent something else than answers."""
    return DeviceLostError(f"device {device} broke TVM's protocol: {how}", code=BROKE_PROTOCOL)


class LeaseLostError(TunefarmError):
    """Another process holds the lease now: stop, write nothing."""

    default_code = "lease-lost"


class CancelledError(TunefarmError):
    """The user asked to stop."""

    default_code = "cancelled"


class InvariantError(TunefarmError):
    """Our own bug."""

    default_code = "internal"


_KINDS: dict[str, type[TunefarmError]] = {
    kind.__name__: kind
    for kind in (
        TunefarmError, InvalidInputError, InvalidModelError, UnknownTargetError, InvalidRecordError, NotFoundError,
        ConflictError, TransientError, DeviceLostError, LeaseLostError, CancelledError, InvariantError,
    )
}  # fmt: skip


def reason_of(error: BaseException) -> str:
    """Return an error's message: that of a `TunefarmError`, or the class and text of another exception."""
    return error.message if isinstance(error, TunefarmError) else f"{type(error).__name__}: {error}"


def error_from_json(data: Mapping[str, Any]) -> TunefarmError:
    """Rebuild the error that `TunefarmError.to_json` wrote (in a child process, or in a row)."""
    kind = _KINDS.get(str(data.get("kind")), InvariantError)
    fields = data.get("fields") or {}
    return kind(str(data.get("message", "")), code=data.get("code"), **dict(fields))
