"""Histories for transfer learning, and records that a confirmation replaced."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from tunefarm_db.repositories.records.transfer import HistoryLimits, Outline
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import Record, Space, Workload

WHERE = {"target_key": "llvm", "device_model": "cpu-model", "toolchain": "tvm-1"}


@pytest.fixture
def add_space(uow: UnitOfWork) -> Any:
    def add(workload_key: str, *extents: int, family: str | None = "conv", **changes: Any) -> Space:
        fields: dict[str, Any] = {
            "workload_key": workload_key,
            "target_key": "llvm",
            "toolchain": "tvm-1",
            "space": {"of": workload_key},
            "space_key": "s1",
            "family": family,
            "extents": list(extents),
        }
        space = Space(**{**fields, **changes})
        workload = Workload(
            key=workload_key, toolchain=space.toolchain, name="conv", flops=1.0, args=[], ir="{}"
        )
        with uow.write() as repos:
            repos.workloads.add_many([workload])
            repos.spaces.put(space)
        return space

    return add


def outlines(
    uow: UnitOfWork, limits: HistoryLimits | None = None, family: str = "conv"
) -> tuple[Outline, ...]:
    with uow.read() as repos:
        return repos.transfer.outlines("own", family=family, extents=(64, 64), limits=limits, **WHERE)


def records_of(uow: UnitOfWork, outline: Outline) -> list[Record]:
    with uow.read() as repos:
        records = repos.records.by_ids(outline.record_ids)
    return [records[record_id] for record_id in outline.record_ids]


def test_a_space_is_stored_once_and_replaced(uow: UnitOfWork, add_space: Any) -> None:
    first = add_space("w1", 3, 4)
    other = add_space("w1", 5, 6, target_key="cuda")
    with uow.read() as repos:
        assert repos.spaces.get("w1", target_key="llvm", toolchain="tvm-1") == first
        assert repos.spaces.get("w1", target_key="cuda", toolchain="tvm-1") == other
        assert repos.spaces.get("w1", target_key="llvm", toolchain="tvm-2") is None
    newer = add_space("w1", 3, 4, space_key="s2", family="other")
    with uow.read() as repos:
        assert repos.spaces.get("w1", target_key="llvm", toolchain="tvm-1") == newer


def test_the_most_similar_come_first(uow: UnitOfWork, add_space: Any, new_record: Any) -> None:
    add_space("own", 64, 64)
    add_space("own", 64, 64, target_key="cuda", space_key="s9")
    add_space("far", 512, 64)
    add_space("near", 128, 64)
    add_space("pool", 64, family="pool")
    add_space("unmeasured", 64, 64)
    add_space("elsewhere", 64, 64)
    add_space("unknown", 64, 64, family=None)
    with uow.write() as repos:
        for key in ("own", "far", "near", "pool"):
            repos.records.add_many([new_record(key, 1e-3), new_record(key, None)])
        repos.records.add_many(
            [
                new_record("own", 2e-3, device_model="another"),
                new_record("own", 3e-3, target_key="cuda", space_key="s9"),
                new_record("own", 4e-3, toolchain="tvm-0"),  # whose space is not known
                new_record("elsewhere", device_model="another"),
                new_record("near", 9e-3, space_key="of another release"),
            ]
        )
    ranked = outlines(uow)
    places = [(outline.workload_key, outline.target_key, outline.device_model) for outline in ranked]
    assert places == [
        ("own", "cuda", "cpu-model"),
        ("own", "llvm", "another"),
        ("near", "llvm", "cpu-model"),
        ("far", "llvm", "cpu-model"),
        ("pool", "llvm", "cpu-model"),
    ]
    assert [[r.cost_sec for r in records_of(uow, outline)] for outline in ranked] == [
        [3e-3],
        [2e-3],
        [1e-3, None],
        [1e-3, None],
        [1e-3, None],
    ]
    assert [outline.space_key for outline in ranked] == ["s9", "s1", "s1", "s1", "s1"]
    # Where the own family is not known, nothing is of it, and which come first is nobody's concern.
    assert {outline.workload_key for outline in outlines(uow, family="")[2:]} == {"pool", "near", "far"}


def test_reads_are_bounded(uow: UnitOfWork, add_space: Any, new_record: Any) -> None:
    for number in range(12):
        add_space(f"w{number}", 64 << number, 64)
        with uow.write() as repos:
            repos.records.add_many([new_record(f"w{number}", 1e-3 * (n + 1)) for n in range(40, 0, -1)])
    limits = HistoryLimits(same_family=3, same_family_records=10)
    statements: list[str] = []
    event.listen(uow.engine, "before_cursor_execute", lambda _c, _k, sql, *_: statements.append(sql))
    ranked = outlines(uow, limits)
    assert len(statements) < 20
    assert [outline.workload_key for outline in ranked] == ["w0", "w1", "w2"]
    for outline in ranked:
        costs = [round(1e3 * (r.cost_sec or 0.0)) for r in records_of(uow, outline)]
        # Five of the oldest, then the five fastest, which came last.
        assert costs == [41, 40, 39, 38, 37, 6, 5, 4, 3, 2]


def test_many_scopes_are_cut_short(uow: UnitOfWork, add_space: Any, new_record: Any) -> None:
    add_space("own", 64, 64)
    with uow.write() as repos:
        repos.records.add_many([new_record("own", device_model=f"model-{n}") for n in range(9)])
    assert [outline.device_model for outline in outlines(uow)] == ["model-0", "model-1", "model-2"]


# ---- confirmations


def best_cost(uow: UnitOfWork, workload_key: str = "w1") -> float | None:
    with uow.read() as repos:
        return repos.records.best([workload_key], **WHERE)[workload_key].cost_sec


def test_a_confirming_record_replaces_all_others_of_its_config(uow: UnitOfWork, new_record: Any) -> None:
    lucky, steady = [0, [1]], [0, [2]]
    with uow.write() as repos:
        repos.records.add_many(
            [new_record(cost_sec=1e-3, config=lucky), new_record(cost_sec=1.1e-3, config=steady)]
        )
        repos.records.add_many([new_record(cost_sec=5e-4, config=lucky, device_model="another")])
    assert best_cost(uow) == 1e-3
    with uow.write() as repos:
        repos.records.add_many([new_record(cost_sec=1.2e-3, config=lucky, confirmed=True)])
    assert best_cost(uow) == 1.1e-3
    with uow.write() as repos:
        repos.records.add_many([new_record(cost_sec=1.05e-3, config=lucky, confirmed=True)])
    assert best_cost(uow) == 1.05e-3
    with uow.read() as repos:
        assert [r.cost_sec for r in repos.records.top("w1", **WHERE)] == [1.05e-3, 1.1e-3]
        ids = repos.records.history_ids("w1", **WHERE)
        assert [repos.records.by_ids(ids)[record_id].cost_sec for record_id in ids] == [1.05e-3, 1.1e-3]
        everything = repos.records.query().items
    assert [(r.cost_sec, r.confirmed, r.superseded) for r in everything[:2]] == [
        (1.05e-3, True, False),
        (1.2e-3, True, True),
    ]
    assert sum(r.superseded for r in everything) == 2
    with uow.read() as repos:  # the other device's stays
        where = {**WHERE, "device_model": "another"}
        assert repos.records.best(["w1"], **where)["w1"].cost_sec == 5e-4


def test_records_of_a_space_that_is_gone_are_not_the_best(
    uow: UnitOfWork, add_space: Any, new_record: Any
) -> None:
    add_space("w1", 3, space_key="now")
    add_space("w1", 3, target_key="cuda", space_key="before")
    with uow.write() as repos:
        repos.records.add_many(
            [new_record(cost_sec=1e-3, space_key="before"), new_record(cost_sec=2e-3, space_key="now")]
        )
        repos.records.add_many([new_record("w2", cost_sec=3e-3, space_key="of a space not on record")])
        repos.records.add_many([new_record("w3", cost_sec=4e-3, space_key="before")])
    add_space("w3", 3, space_key="now")
    with uow.read() as repos:
        best = repos.records.best(["w1", "w2", "w3"], **WHERE)
        assert {key: record.cost_sec for key, record in best.items()} == {"w1": 2e-3, "w2": 3e-3}
        assert repos.records.best_costs(["w1", "w2", "w3"], **WHERE) == {"w1": 2e-3, "w2": 3e-3}


def test_what_comes_after_a_confirmation_does_not_count(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        repos.records.add_many([new_record(cost_sec=1.2e-3, confirmed=True)])
        repos.records.add_many([new_record(cost_sec=1e-3), new_record(cost_sec=1.3e-3, config=[1, []])])
        repos.records.add_many([new_record(cost_sec=9e-4, space_key="another")])
    with uow.read() as repos:
        assert [r.cost_sec for r in repos.records.top("w1", **WHERE)] == [9e-4, 1.2e-3, 1.3e-3]


def test_a_winner_that_fails_when_confirmed_is_out(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        repos.records.add_many([new_record(cost_sec=1e-3), new_record(cost_sec=2e-3, config=[1, []])])
        repos.records.add_many([new_record(cost_sec=None, confirmed=True)])
    assert best_cost(uow) == 2e-3


def test_records_and_their_confirmations_may_come_together(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        repos.records.add_many(
            [
                new_record(cost_sec=1e-3),
                new_record(cost_sec=1.1e-3, confirmed=True),
                new_record(cost_sec=1.2e-3, confirmed=True),
            ]
        )
    assert best_cost(uow) == 1.2e-3


def test_the_fastest_of_several_workloads(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        repos.records.add_many([new_record(f"w{n % 3}", 1e-3 * (n + 1)) for n in range(12)])
    with uow.read() as repos:
        fastest = repos.records.top_of(["w0", "w2", "none"], limit=2, **WHERE)
    assert {key: [r.cost_sec for r in records] for key, records in fastest.items()} == {
        "w0": [1e-3, 4e-3],
        "w2": [3e-3, 6e-3],
    }
