"""What the server's checks of the farm found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tunefarm.client.results.fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmCheck:
    """One check. `verdict` is ``ok``, ``warning`` or ``failed``; `advice` says what to do about it."""

    check: str
    verdict: str
    message: str
    advice: str

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "check")
        return cls(
            check=f.text("check"),
            verdict=f.text("verdict"),
            message=f.text("message"),
            advice=f.text("advice", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmChecks:
    """How the whole farm does. `ok` says that nothing failed; `time` is the server's clock, Unix seconds."""

    ok: bool
    time: float
    checks: tuple[FarmCheck, ...]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "checks")
        return cls(
            ok=f.flag("ok"),
            time=f.number("time"),
            checks=tuple(FarmCheck.read(item) for item in f.items("checks")),
            raw=f.data,
        )
