"""The histories that a tuner learns from: the most similar first, within a bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from tuning_records import RECORD

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.transfer import TaskHistory, choose_histories, distance, thin_out
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.workload.computation import Access, Axis, Computation

_numbers = count()


def matmul(m: int, n: int, k: int, *, itemsize_bytes: int = 4) -> ConfigSpace:
    axes = (
        Axis(extent=m, reduces=False),
        Axis(extent=n, reduces=False),
        Axis(extent=k, reduces=True),
    )
    accesses = (
        Access(itemsize_bytes=itemsize_bytes, writes=False, dims=(((0, 1),), ((2, 1),))),
        Access(itemsize_bytes=itemsize_bytes, writes=True, dims=(((0, 1),), ((1, 1),))),
    )
    knobs = tuple(Knob.tile(name, size, 2, 64) for name, size in zip("mnk", (m, n, k), strict=True))
    return ConfigSpace([Sketch(knobs)], Computation(axes=axes, accesses=accesses, vector_bytes=32))


def records(space: ConfigSpace, workload_key: str, costs: list[float | None]) -> tuple[TuningRecord, ...]:
    return tuple(
        replace(
            RECORD,
            workload_key=workload_key,
            space_key=space.key,
            config=Config(0, (next(_numbers),)),
            outcome=Outcome.OK if cost else Outcome.RUN_ERROR,
            samples_sec=(cost,) if cost else (),
        )
        for cost in costs
    )


def history(space: ConfigSpace, workload_key: str, n: int = 3) -> TaskHistory:
    return TaskHistory(space=space, records=records(space, workload_key, [1e-3 + i * 1e-4 for i in range(n)]))


OWN = matmul(64, 64, 64)


def names(chosen: tuple[TaskHistory, ...]) -> list[str]:
    return [history.records[0].workload_key for history in chosen]


def test_the_same_workload_then_the_nearest_of_the_family_then_others() -> None:
    known = [
        history(matmul(64, 64, 64, itemsize_bytes=2), "half"),
        history(matmul(512, 64, 64), "far"),
        history(matmul(128, 64, 64), "near"),
        history(matmul(64, 32, 128), "between"),
        history(OWN, "own"),
    ]
    chosen = choose_histories(OWN, "own", known)
    assert names(chosen) == ["own", "near", "between", "far", "half"]
    assert choose_histories(OWN, "own", known) == chosen


def test_equal_spaces_of_two_workloads_are_two_histories() -> None:
    assert names(choose_histories(OWN, "own", [history(OWN, "twin"), history(OWN, "own")])) == ["own", "twin"]


def test_the_number_of_records_is_bounded() -> None:
    known = [history(matmul(64 << i, 64, 64), f"w{i}", 500) for i in range(8)] + [history(OWN, "own", 500)]
    chosen = choose_histories(OWN, "own", known)
    assert sum(len(history.records) for history in chosen) == 600
    assert [len(history.records) for history in chosen] == [240, 120, 120, 120]
    few = choose_histories(OWN, "own", known, limit=10)
    assert (names(few), len(few[0].records)) == (["own"], 10)


def test_few_are_taken_from_other_families() -> None:
    known = [history(matmul(8, 8, 8 << i, itemsize_bytes=2), f"w{i}", 100) for i in range(9)]
    assert [len(history.records) for history in choose_histories(OWN, "own", known)] == [40] * 4


def test_where_no_family_is_known_none_is_shared() -> None:
    plain = ConfigSpace([Sketch((Knob.categorical("c", (0, 8)),))])
    known = [history(plain, "a", 100), history(plain, "own", 100)]
    assert [len(history.records) for history in choose_histories(plain, "own", known)] == [100, 40]


def test_records_of_another_space_and_superseded_ones_are_no_use() -> None:
    good = records(OWN, "own", [1e-3, 2e-3])
    confirmed = replace(good[0], samples_sec=(3e-3,), measured_at=2.0, extra={"confirmed": True})
    strange = replace(good[1], space_key="another")
    (chosen,) = choose_histories(
        OWN,
        "own",
        [TaskHistory(space=OWN, records=(*good, confirmed, strange)), history(matmul(2, 2, 2), "x", 0)],
    )
    assert chosen.records == (good[1], confirmed)


@given(st.lists(st.none() | st.floats(1e-6, 1.0), max_size=60), st.integers(1, 40))
def test_thinning_keeps_the_fastest_and_some_of_all_kinds(costs: list[float | None], most: int) -> None:
    given_records = records(OWN, "own", costs)
    kept = thin_out(given_records, most)
    assert len(kept) == min(most, len(costs))
    assert [r for r in given_records if r in kept] == list(kept)
    worked = [cost for cost in costs if cost]
    if worked and most > 1:
        assert min(r.cost_sec for r in kept if r.cost_sec) == min(worked)


def test_thinning_spreads() -> None:
    kept = thin_out(records(OWN, "own", [1e-3 * (i + 1) for i in range(100)] + [None] * 20), 20)
    costs = [r.cost_sec for r in kept]
    assert costs.count(None) == 3
    assert [round(1e3 * cost) for cost in costs if cost][:8] == list(range(1, 9))
    assert max(cost for cost in costs if cost) > 0.09


def test_distance_is_in_doublings() -> None:
    assert distance((64, 64), (128, 16)) == 3.0
    assert distance((64,), (64, 1)) == float("inf")
