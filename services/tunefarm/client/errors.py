"""The client's errors: the class says what the caller can do, the code says what happened.

::

    ClientError
    ├── InvalidRequestError    fix the request (bad model, bad budget, over a limit)
    ├── AuthenticationError    give a valid API key
    ├── ForbiddenError         the key may not do this
    ├── NotFoundError          there is no such thing
    ├── ConflictError          the present state forbids it
    ├── UnavailableError       try again later; already retried where that is safe
    │   └── WaitTimeoutError   what was waited for did not happen in time; it goes on
    ├── ServerError            the server has a bug, or something between is broken
    │   └── ProtocolError      the answer is not what this client understands
    ├── ModelFailedError       the uploaded model could not be imported
    ├── JobFailedError         the job ended without an artifact
    └── JobCancelledError      somebody cancelled the job
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_STANDARD = frozenset({"type", "title", "status", "detail", "instance", "code"})


class ClientError(Exception):
    """Base of everything that the client raises on purpose.

    Args:
        detail: What happened, in a sentence or two.
        code: Stable kebab-case name of the problem.
        status: HTTP status, where the server answered.
        fields: The problem document's further members.
    """

    def __init__(
        self, detail: str, *, code: str, status: int | None = None, fields: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.fields: dict[str, Any] = dict(fields or {})


class InvalidRequestError(ClientError):
    """The request is wrong: fix it, then try again."""


class AuthenticationError(ClientError):
    """There is no API key, or it is not valid."""


class ForbiddenError(ClientError):
    """The API key may not do this."""


class NotFoundError(ClientError):
    """There is no such thing."""


class ConflictError(ClientError):
    """The present state forbids this."""


class UnavailableError(ClientError):
    """The server cannot be reached or is overloaded: try again later."""


class WaitTimeoutError(UnavailableError):
    """What was waited for did not happen in time. It still goes on at the server."""


class ServerError(ClientError):
    """The server has a bug, or something on the way to it is broken."""


class ProtocolError(ServerError):
    """The server's answer is not what this client understands."""


class ModelFailedError(ClientError):
    """The uploaded model could not be imported; the code and the fields say why."""


class JobFailedError(ClientError):
    """The job ended without an artifact; the code and the fields say why."""


class JobCancelledError(ClientError):
    """The job was cancelled."""


_BY_STATUS: Mapping[int, type[ClientError]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    410: NotFoundError,
    412: ConflictError,
    423: ConflictError,
    429: UnavailableError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def error_from_answer(status: int, content_type: str, body: bytes) -> ClientError:
    """Return the error for an answer outside 2xx: a problem document where there is one, else the status alone."""
    kind = _BY_STATUS.get(status, InvalidRequestError if 400 <= status < 500 else ServerError)
    problem: Any = None
    if content_type.partition(";")[0].strip() in ("application/problem+json", "application/json"):
        try:
            problem = json.loads(body)
        except ValueError:
            problem = None
    if not isinstance(problem, dict):
        return kind(f"the server answered with status {status}", code=f"http-{status}", status=status)
    detail = problem.get("detail") or problem.get("title") or f"the server answered with status {status}"
    return kind(
        detail if isinstance(detail, str) else json.dumps(detail),
        code=str(problem.get("code") or f"http-{status}"),
        status=status,
        fields={name: value for name, value in problem.items() if name not in _STANDARD},
    )
