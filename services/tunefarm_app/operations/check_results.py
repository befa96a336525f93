"""Results of checks, and the checks of clocks and versions.

This module imports no database: machines that are only a client or a device use it too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata

from tunefarm_tuning.core.untrusted_text import clean

CLOCK_SKEW_SEC = 5.0


class Verdict(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check.

    Attributes:
        check: The name of the check.
        message: The result in words.
        advice: What to do; empty if there is nothing to do.
    """

    check: str
    verdict: Verdict
    message: str
    advice: str = ""


def ok(check: str, message: str) -> CheckResult:
    """Return the result of a check that passed."""
    return CheckResult(check=check, verdict=Verdict.OK, message=message)


def warning(check: str, message: str, advice: str) -> CheckResult:
    """Return the result of a check that found something to look at; `advice` says what to do."""
    return CheckResult(check=check, verdict=Verdict.WARNING, message=message, advice=advice)


def failed(check: str, message: str, advice: str) -> CheckResult:
    """Return the result of a check that failed; `advice` says what to do."""
    return CheckResult(check=check, verdict=Verdict.FAILED, message=message, advice=advice)


def judge_clock(check: str, skew_sec: float, whose: str) -> CheckResult:
    """Check the difference between another clock and this machine's."""
    if abs(skew_sec) <= CLOCK_SKEW_SEC:
        return ok(check, f"within {CLOCK_SKEW_SEC:g} s of {whose}")
    return warning(
        check,
        f"{whose} clock is {abs(skew_sec):.0f} s {'ahead of' if skew_sec > 0 else 'behind'} this machine's",
        "Synchronize both with NTP (`timedatectl`). Leases use the database's clock and are safe, but times "
        "of day and lists sorted by age are wrong.",
    )


_MOST_NAMED = 5


def judge_versions(versions: Mapping[str, Mapping[str, str]]) -> CheckResult:
    """Check package versions (owner -> package -> version) against the versions that tunefarm pins."""
    pins = pinned()
    wrong = [
        f"{owner} has {package} {installed[package]}"
        for owner, installed in versions.items()
        for package, pin in pins.items()
        if package in installed and installed[package] != pin
    ]
    required = ", ".join(f"{package}=={pin}" for package, pin in sorted(pins.items()))
    if wrong:
        return failed(
            "versions",
            clean("; ".join(wrong[:_MOST_NAMED]), 500),
            f"Reinstall tunefarm there with its extra, which installs {required}. Records of another TVM "
            "are not used, and apache-tvm-ffi 0.1.15 crashes on every model.",
        )
    own = metadata.version("tunefarm")
    others = sorted(
        {installed["tunefarm"] for installed in versions.values() if installed.get("tunefarm", own) != own}
    )
    if others:
        return warning(
            "versions",
            clean(f"tunefarm {own} here, {', '.join(others)} elsewhere", 500),
            "Upgrade all parts to one version, devices last.",
        )
    return ok("versions", f"tunefarm {own}, {required}")


def pinned() -> dict[str, str]:
    """Return the packages that tunefarm pins, with their versions."""
    matches = (
        re.match(r"([A-Za-z0-9._-]+)==([^;\s]+)", text) for text in metadata.requires("tunefarm") or ()
    )
    return {match[1]: match[2] for match in matches if match}
