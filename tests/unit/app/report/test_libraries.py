"""Which kernels a library computes faster than the best of ours."""

from __future__ import annotations

from typing import Any

from tunefarm_app.report.libraries import libraries_ahead
from tunefarm_app.report.sections import ReportAlternative


def alternative(key: str, sum_sec: float, **more: Any) -> ReportAlternative:
    plain = {"algorithm": "onednn", "library": "onednn 3.9", "chosen": False, "direct_sec": 1.0, "weight": 1}
    return ReportAlternative(
        **{**plain, "workload_key": key, "name": f"conv-{key}", "sum_sec": sum_sec, **more}
    )


def test_those_that_cost_most_come_first_and_slower_ones_are_left_out() -> None:
    ahead = libraries_ahead(
        [
            alternative("a", 0.9),
            alternative("b", 0.8, weight=3, chosen=True),
            alternative("c", 1.2),
            alternative("d", 0.99),  # noise
            alternative("e", 0.5, direct_sec=None),  # ours was not timed
        ]
    )
    assert [(entry.workload_key, round(entry.gain_sec, 9), entry.chosen) for entry in ahead] == [
        ("b", 0.6, True),
        ("a", 0.1, False),
    ]


def test_our_best_may_be_another_algorithm() -> None:
    ours = {"algorithm": "winograd-4", "library": ""}
    assert libraries_ahead([alternative("a", 0.9), alternative("a", 0.8, **ours)]) == []
    (entry,) = libraries_ahead([alternative("a", 0.6), alternative("a", 0.8, **ours)])
    assert (entry.own_sec, round(entry.share, 9)) == (0.8, 0.75)
    (entry,) = libraries_ahead([alternative("a", 0.9), alternative("a", 1.8, **ours)])
    assert entry.own_sec == 1.0


def test_it_is_told_in_a_sentence() -> None:
    (used,) = libraries_ahead([alternative("a", 0.12e-3, direct_sec=0.15e-3, chosen=True)])
    assert used.sentence == "oneDNN 3.9 computes this kernel in 120 µs, 0.8 of our best (150 µs)."
    (unused,) = libraries_ahead([alternative("a", 0.12e-3, direct_sec=0.15e-3)])
    assert unused.sentence.endswith("(150 µs). The artifact does not use it.")
