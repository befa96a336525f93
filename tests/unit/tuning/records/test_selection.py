"""The choice of records: a confirmed config is judged by its newest confirmation alone."""

from __future__ import annotations

from dataclasses import replace

from tuning_records import RECORD

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.selection import fastest, pick_best, without_superseded
from tunefarm_tuning.space.config import Config


def record(config: int, cost_sec: float | None, *, at: float = 1.0, confirmed: bool = False) -> TuningRecord:
    return replace(
        RECORD,
        config=Config(0, (config,)),
        outcome=Outcome.OK if cost_sec else Outcome.RUN_CRASH,
        samples_sec=(cost_sec,) if cost_sec else (),
        measured_at=at,
        extra={"confirmed": True} if confirmed else {},
    )


LUCKY, STEADY = record(1, 0.9e-3), record(2, 1.0e-3)


def test_without_confirmations_all_stand() -> None:
    assert without_superseded([LUCKY, STEADY, LUCKY]) == [LUCKY, STEADY, LUCKY]
    assert pick_best([LUCKY, STEADY]) == [LUCKY]


def test_a_confirmation_replaces_earlier_records() -> None:
    slower = record(1, 1.1e-3, at=2.0, confirmed=True)
    again = record(2, 1.05e-3, at=2.0, confirmed=True)
    assert without_superseded([LUCKY, STEADY, slower, again]) == [slower, again]
    assert pick_best([slower, LUCKY, again, STEADY]) == [again]
    assert pick_best([LUCKY, STEADY, slower]) == [STEADY]  # not confirmed, and still the fastest that counts


def test_the_newest_confirmation_counts_wherever_it_stands() -> None:
    older, newer = (record(1, cost, at=at, confirmed=True) for cost, at in ((0.8e-3, 2.0), (1.2e-3, 3.0)))
    assert without_superseded([newer, LUCKY, older]) == [newer]


def test_a_config_that_fails_when_confirmed_is_out() -> None:
    crashed = record(1, None, at=2.0, confirmed=True)
    assert pick_best([LUCKY, crashed, STEADY]) == [STEADY]
    assert pick_best([LUCKY, crashed]) == []
    history = History([LUCKY, crashed, STEADY])
    winner, _, _ = history.find("w", target_key="t", device_model="d", toolchain="c")
    assert winner == STEADY


def test_a_confirmation_holds_where_it_was_made() -> None:
    confirmed = record(1, 1.1e-3, at=2.0, confirmed=True)
    for elsewhere in ("workload_key", "target_key", "device_model", "toolchain", "space_key"):
        other = replace(LUCKY, **{elsewhere: "other"})
        assert without_superseded([other, confirmed]) == [other, confirmed]


def test_the_fastest_are_different_configs() -> None:
    again = record(1, 0.95e-3)
    third = record(3, 2e-3)
    assert fastest([third, again, STEADY, LUCKY, record(4, None)], 3) == [LUCKY, STEADY, third]
    assert fastest([LUCKY, STEADY, record(1, 3e-3, confirmed=True)], 1) == [STEADY]
