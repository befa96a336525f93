"""Schemas of problem documents."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Output


class Problem(Output):
    """A problem document (RFC 9457), as `application/problem+json`. Some codes come with further members."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:tunefarm:problem:unknown-device-key",
                    "title": "Unknown device key",
                    "status": 422,
                    "detail": "there is no pool 'epic'; did you mean epyc?",
                    "instance": "/v1/jobs",
                    "code": "unknown-device-key",
                    "request_id": "5f0c1ab2c3d4e5f6",
                    "known": ["epyc"],
                }
            ]
        },
    )

    type: str = Field(description="URN of the kind of problem; equivalent to `code`.")
    title: str = Field(description="Title of the code.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="Description for people.")
    instance: str = Field(description="Requested path.")
    code: str = Field(description="Stable kebab-case name of the problem, for programs.")
    request_id: str = Field(
        description="Identifier of the request in the server's log; also in `X-Request-ID`."
    )


class StoredError(Output):
    """Error of a model or a job."""

    kind: str = Field(description="The error's class.")
    code: str = Field(description="Stable kebab-case name of the problem.")
    message: str = Field(description="Description for people.")
    fields: dict[str, Any] = Field(description="Details for programs, by code.")
