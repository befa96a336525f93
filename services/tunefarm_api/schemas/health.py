"""Schemas of health and of the farm's checks."""

from __future__ import annotations

from pydantic import Field

from tunefarm_api.schemas.base import Output
from tunefarm_app.operations.check_results import Verdict


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


class Check(Output):
    """What one check found."""

    check: str = Field(description="What was looked at.", examples=["broker"])
    verdict: Verdict = Field(
        description="`ok`, `warning` (it works, but not for long or not well) or `failed`."
    )
    message: str = Field(description="What was found.", examples=["does not answer"])
    advice: str = Field(description="What to do about it; empty where it is ok.")


class Checks(Output):
    """How the whole farm does, as this API process sees it."""

    ok: bool = Field(description="Whether nothing failed.")
    time: float = Field(description="This API process's clock, Unix seconds.", examples=[1760000000.0])
    checks: list[Check] = Field(description="One per check, in a fixed order.")
