"""What checks find. Light: a machine that is only a client or a device imports it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CLOCK_SKEW_SEC = 5.0


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was looked at.
        message: What was found, in words.
        advice: What to do; empty where there is nothing to do.
    """

    check: str
    verdict: Verdict
    message: str
    advice: str = ""


def ok(check: str, message: str) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, message=message)


def warning(check: str, message: str, advice: str) -> Finding:
    return Finding(check=check, verdict=Verdict.WARNING, message=message, advice=advice)


def failed(check: str, message: str, advice: str) -> Finding:
    return Finding(check=check, verdict=Verdict.FAILED, message=message, advice=advice)


def judge_clock(check: str, skew_sec: float, whose: str) -> Finding:
    """Return what a difference between this machine's clock and another means."""
    if abs(skew_sec) <= CLOCK_SKEW_SEC:
        return ok(check, f"within {CLOCK_SKEW_SEC:g} s of {whose}")
    return warning(
        check,
        f"{whose} clock is {abs(skew_sec):.0f} s {'ahead of' if skew_sec > 0 else 'behind'} this machine's",
        "Let NTP set both (`timedatectl`). Leases go by the database's clock and hold; times of day and lists "
        "that are sorted by age are wrong meanwhile.",
    )
