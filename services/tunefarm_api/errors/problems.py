"""Problem documents (RFC 9457): the form of every error, and the table from errors to statuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from tunefarm_api.errors.problem_kinds import URN
from tunefarm_api.methods import allowed_methods, method_of
from tunefarm_api.paths import TUS_VERSION, is_page, is_upload_path, no_such_page
from tunefarm_api.schemas.problem import Problem
from tunefarm_db.acting import acting
from tunefarm_tuning.core.errors import (
    CancelledError,
    ConflictError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    TransientError,
    TunefarmError,
)
from tunefarm_tuning.core.untrusted_text import clean

MEDIA_TYPE = "application/problem+json"

_STATUS_BY_CODE = {
    "unauthenticated": 401,
    "forbidden": 403,
    "upload-stalled": 408,
    "model-deleted": 410,
    "tus-version": 412,
    "too-large": 413,
    "unsupported-media-type": 415,
    "host-not-allowed": 421,
    "upload-locked": 423,
    "quota-bytes": 403,
    "quota-device-minutes": 403,
    "quota-own-jobs": 403,
    "quota-priority": 403,
    "quota-open-jobs": 429,
    "audit-check-running": 429,
    "rate-limited": 429,
    "too-many-at-once": 429,
    "too-many-headers": 431,
    "database-full": 507,
    "store-full": 507,
}
_STATUS_BY_KIND: tuple[tuple[type[TunefarmError], int], ...] = (
    (InvalidInputError, 422),
    (NotFoundError, 404),
    (ConflictError, 409),
    (LeaseLostError, 409),
    (CancelledError, 409),
    (TransientError, 503),
)
_CODE_BY_STATUS = {
    401: "unauthenticated",
    403: "forbidden",
    404: "no-such-route",
    405: "method-not-allowed",
    408: "upload-stalled",
    413: "too-large",
    415: "unsupported-media-type",
}
# These messages are only logged: they may name hosts and paths.
_PUBLIC_DETAILS = {
    "internal": "the server has a bug: report it with the request_id, its log has the details",
    "database-unavailable": "the database does not answer now; try again later",
    "database-full": "this farm's database is full: nothing can be added until space is freed",
    "store-full": "this farm's store is full: nothing can be uploaded until space is freed",
    "store-unavailable": "the store cannot be read or written now; try again later",
}
_PLAIN_MESSAGES = (
    (re.compile("^[A-Z][a-z]+ should "), "must "),
    (re.compile("^Field required$"), "is missing"),
    (re.compile("^Extra inputs are not permitted$"), "is not known here"),
)
"""How pydantic begins its messages, and how a sentence about a member of a request continues."""

_RESERVED = frozenset({"type", "title", "status", "detail", "instance", "code", "request_id"})
_RETRY_AFTER_SEC = 2


class ProblemResponse(JSONResponse):
    """A problem document, as ``application/problem+json``."""

    media_type = MEDIA_TYPE


def status_of(error: TunefarmError) -> int:
    """Return the HTTP status for an error: by its code, else by its class; 500 if the fault is ours."""
    if error.code in _STATUS_BY_CODE:
        return _STATUS_BY_CODE[error.code]
    return next((status for kind, status in _STATUS_BY_KIND if isinstance(error, kind)), 500)


def problem_response(
    request_path: str,
    request_id: str,
    *,
    status: int,
    code: str,
    detail: str,
    fields: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    """Return the problem document as an answer."""
    acting().problem = code
    headers = dict(headers or {})
    if is_upload_path(request_path):  # tus wants it in every answer
        headers["Tus-Resumable"] = TUS_VERSION
    own = {name: value for name, value in (fields or {}).items() if name not in _RESERVED}
    document = {
        "type": f"{URN}{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": _PUBLIC_DETAILS.get(code, detail),
        "instance": request_path,
        "code": code,
        "request_id": request_id,
        **own,
    }
    return ProblemResponse(document, status_code=status, headers=headers)


def response_to_error(request_path: str, request_id: str, error: TunefarmError) -> ProblemResponse:
    """Return the answer for a `TunefarmError`."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="tunefarm"'
    if status == 412:
        headers["Tus-Version"] = TUS_VERSION
    if status in (423, 429, 503):
        headers["Retry-After"] = str(error.fields.get("retry_after_sec", _RETRY_AFTER_SEC))
    code = "internal" if status == 500 else error.code
    fields = {} if status == 500 else error.fields
    return problem_response(
        request_path,
        request_id,
        status=status,
        code=code,
        detail=error.message,
        fields=fields,
        headers=headers,
    )


def install_handlers(app: FastAPI) -> None:
    """Turn every error that a route or the framework raises into a problem document."""
    app.add_exception_handler(TunefarmError, _on_tunefarm_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return a route's OpenAPI responses for these statuses, and for those of every route."""
    return {
        status: {**problem_of(status), "model": Problem}
        for status in sorted({*statuses, 401, 403, 422, 429, 503})
    }


def problem_of(status: int) -> dict[str, Any]:
    """Return the OpenAPI description of a problem document."""
    return {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


async def _on_tunefarm_error(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, TunefarmError)
    return response_to_error(request.url.path, request_id_of(request), error)


async def _on_http_exception(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:  # so FastAPI says that a body is no text; where it is no JSON, it says 422
        return _invalid_request(request, [{"where": "body", "message": "this is not JSON in UTF-8"}])
    code = _CODE_BY_STATUS.get(error.status_code, f"http-{error.status_code}")
    detail, headers = str(error.detail), error.headers
    if code == "no-such-route" and is_page(request.url.path):
        return response_to_error(request.url.path, request_id_of(request), no_such_page(request.url.path))
    if code == "no-such-route":
        detail = f"there is no route at {clean(request.url.path)}"
    elif code == "method-not-allowed":
        allowed = ", ".join(allowed_methods(request.app.routes, request.scope))
        detail = (
            f"{clean(method_of(request.scope))} is not a method of {clean(request.url.path)}, which has "
            f"{allowed}"
        )
        headers = {"Allow": allowed}
    return problem_response(
        request.url.path,
        request_id_of(request),
        status=error.status_code,
        code=code,
        detail=detail,
        headers=headers,
    )


async def _on_validation_error(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)
    # The client's input is not echoed: a body can contain anything.
    errors = [
        {"where": "body", "message": f"this is not JSON, from character {item['loc'][-1]} on"}
        if item["type"] == "json_invalid"
        else {"where": ".".join(str(part) for part in item["loc"]), "message": item["msg"]}
        for item in error.errors()[:20]
    ]
    return _invalid_request(request, errors)


def _invalid_request(request: Request, errors: list[dict[str, str]]) -> ProblemResponse:
    detail = "; ".join(_plain(error) for error in errors)
    return problem_response(
        request.url.path,
        request_id_of(request),
        status=422,
        code="invalid-request",
        detail=detail,
        fields={"errors": errors},
    )


def _plain(error: Mapping[str, str]) -> str:
    """Return a fault of a request for people: ``"state must be 'queued' or 'failed'"``."""
    _, _, member = clean(error["where"]).partition(".")
    message = clean(error["message"], 1000)
    for pattern, text in _PLAIN_MESSAGES:
        message, count = pattern.subn(text, message)
        if count:
            return f"{member or 'the body'} {message}"
    return f"{member}: {message}" if member else message


def request_id_of(request: Request) -> str:
    """Return the id of the request, which is also in the log."""
    return str(request.scope.get("tunefarm.request_id", ""))
