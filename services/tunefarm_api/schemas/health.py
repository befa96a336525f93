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
    """Whether requests can be served; each check is `ok` or an error."""

    ready: bool = Field(description="Whether all required checks are ok.")
    checks: dict[str, str] = Field(
        description="`database`, `schema` and `store` are required. Without `broker`, work starts later.",
        examples=[{"database": "ok", "schema": "ok", "store": "ok", "broker": "ok"}],
    )


class Check(Output):
    """The result of a check."""

    check: str = Field(description="Name of the check.", examples=["broker"])
    verdict: Verdict = Field(description="`ok`, `warning` (works, but badly or not for long) or `failed`.")
    message: str = Field(description="Result of the check.", examples=["does not answer"])
    advice: str = Field(description="Advice; empty if ok.")


class Checks(Output):
    """State of the whole farm, as this API process sees it."""

    ok: bool = Field(description="Whether no check failed.")
    time: float = Field(description="Clock of this API process, Unix seconds.", examples=[1760000000.0])
    checks: list[Check] = Field(description="One per check, in a fixed order.")
