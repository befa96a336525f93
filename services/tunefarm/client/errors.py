"""Errors of the client: the class says what the caller can do, the code says what happened.

::

    ClientError
    ├── InvalidRequestError    fix the request (bad model, bad budget, over a limit)
    ├── AuthenticationError    use a valid API key
    ├── ForbiddenError         the key may not do this
    ├── NotFoundError          the resource does not exist
    ├── ConflictError          the current state forbids it
    ├── UnavailableError       try again later; already retried if that is safe
    │   └── WaitTimeoutError   the wait was too short; the work continues
    ├── ServerError            the server or a proxy has a bug
    │   └── ProtocolError      this client cannot read the response
    ├── ModelFailedError       the uploaded model could not be imported
    ├── JobFailedError         the job ended without an artifact
    └── JobCancelledError      the job was cancelled
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_STANDARD = frozenset({"type", "title", "status", "detail", "instance", "code"})


class ClientError(Exception):
    """Base class of the client's errors.

    Args:
        detail: What happened, in a sentence or two.
        code: Stable kebab-case name of the problem.
        status: HTTP status, where the server answered.
        fields: Further members of the problem document.
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
    """The resource does not exist."""


class ConflictError(ClientError):
    """The current state forbids the request."""


class UnavailableError(ClientError):
    """The server cannot be reached or is overloaded: try again later."""


class WaitTimeoutError(UnavailableError):
    """The wait was too short. The work continues on the server."""


class ServerError(ClientError):
    """The server or a proxy has a bug."""


class ProtocolError(ServerError):
    """This client cannot read the server's response."""


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
    """Return the error of a response outside 2xx, from its problem document or else its status.

    Args:
        status: HTTP status.
        content_type: Header ``Content-Type``.
        body: Body of the response, as received.
    """
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
