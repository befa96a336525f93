"""Is the compiler the one that tunefarm is made for? Light: a machine that is only a device imports it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata

from tunefarm_app.operations.findings import Finding, failed, ok, warning
from tunefarm_tuning.core.untrusted_text import clean

_MOST_NAMED = 5


def judge_versions(found: Mapping[str, Mapping[str, str]]) -> Finding:
    """Return what is to be said of packages and versions, by who has them."""
    pins = pinned()
    wrong = [
        f"{who} has {package} {has[package]}"
        for who, has in found.items()
        for package, pin in pins.items()
        if package in has and has[package] != pin
    ]
    wanted = ", ".join(f"{package}=={pin}" for package, pin in sorted(pins.items()))
    if wrong:
        return failed(
            "versions",
            clean("; ".join(wrong[:_MOST_NAMED]), 500),
            f"Install tunefarm again there, with its extra: it brings {wanted}. Records of another TVM are kept "
            "apart, and apache-tvm-ffi 0.1.15 crashes on every model.",
        )
    own = metadata.version("tunefarm")
    others = sorted({has["tunefarm"] for has in found.values() if has.get("tunefarm", own) != own})
    if others:
        return warning(
            "versions",
            clean(f"tunefarm {own} here, {', '.join(others)} elsewhere", 500),
            "Bring all parts to one version; devices last.",
        )
    return ok("versions", f"tunefarm {own}, {wanted}")


def pinned() -> dict[str, str]:
    """Return the packages that tunefarm is made for one version of, with that version."""
    found = (re.match(r"([A-Za-z0-9._-]+)==([^;\s]+)", text) for text in metadata.requires("tunefarm") or ())
    return {match[1]: match[2] for match in found if match}
