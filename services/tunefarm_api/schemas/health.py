"""Health over the wire."""

from __future__ import annotations

from pydantic import Field

from tunefarm_api.schemas.base import Output


class Health(Output):
    """The process answers."""

    status: str = Field(description="Always `ok`.", examples=["ok"])
    version: str = Field(description="Version of tunefarm.", examples=["0.1.0"])


class Readiness(Output):
    """Whether requests can be served; each check says `ok` or what is wrong."""

    ready: bool = Field(description="Whether every check that matters is ok.")
    checks: dict[str, str] = Field(
        description="`database`, `schema` and `store` must be ok; `broker` may be away, work then starts later.",
        examples=[{"database": "ok", "schema": "ok", "store": "ok", "broker": "ok"}],
    )
