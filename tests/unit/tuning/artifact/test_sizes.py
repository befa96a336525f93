"""Conditions on sizes: which sizes meet them, and what is said of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_tuning.artifact.sizes import SizeChecks, condition_text


def condition(kind: str, size: Any, of: Any) -> dict[str, Any]:
    return {"kind": kind, "size": size, "of": of, "node": "'a' (Reshape)"}


@pytest.mark.parametrize(
    ("listed", "fitting", "unfitting"),
    [
        (condition("multiple", ["*", "n", "t"], 4), {"n": 2, "t": 6}, {"n": 3, "t": 5}),
        (condition("multiple", "n", "t"), {"n": 6, "t": 3}, {"n": 6, "t": 4}),
        (condition("least", ["-", "n", ["//", "t", 2]], 1), {"n": 3, "t": 5}, {"n": 3, "t": 6}),
        (condition("equal", ["%", "n", 3], ["min", "t", 2]), {"n": 5, "t": 9}, {"n": 5, "t": 1}),
        (condition("equal", ["max", "n", "t"], ["+", "n", 1]), {"n": 2, "t": 3}, {"n": 3, "t": 3}),
        (condition("multiple", "n", ["-", "t", 2]), {"n": 4, "t": 4}, {"n": 4, "t": 2}),
    ],
)
def test_sizes_meet_a_condition_or_do_not(
    listed: dict[str, Any], fitting: dict[str, int], unfitting: dict[str, int]
) -> None:
    assert SizeChecks([listed]).why_not(fitting) == ""
    assert condition_text(listed) in SizeChecks([listed]).why_not(unfitting)


def test_the_first_broken_condition_is_named_with_its_sizes() -> None:
    checks = SizeChecks([condition("least", "n", 1), condition("equal", ["*", "n", "t"], ["*", "s", 2])])
    assert checks.why_not({"n": 2, "t": 3, "s": 4}) == (
        "with the dimensions 'n' = 2, 's' = 4, 't' = 3, n * t is 6 and s * 2 is 8, but n * t has to be equal to s * 2 for node "
        "'a' (Reshape)"
    )


def test_a_division_by_zero_is_no_error() -> None:
    why = SizeChecks([condition("multiple", "n", ["-", "t", 2])]).why_not({"n": 4, "t": 2})
    assert why.startswith("with the dimensions 'n' = 4, 't' = 2, a size is divided by 0, but")
