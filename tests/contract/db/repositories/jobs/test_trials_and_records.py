"""Trials and records."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event

from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.unit_of_work import Repositories, UnitOfWork
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError

WHERE = {"target_key": "llvm", "device_model": "cpu-model", "toolchain": "tvm-1"}


def test_trials_are_read_back_in_order(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    job = seed.job()
    with uow.write() as repos:
        repos.trials.add_many(job.id, 2, [new_trial(n, config_key=f"b{n}", position=1) for n in range(3)])
        ids = repos.trials.add_many(job.id, 1, [new_trial(n) for n in range(12)])
        assert repos.trials.add_many(job.id, 3, []) == ()
    with uow.read() as repos:
        first = repos.trials.page(job.id, limit=10)
        assert [t.id for t in first.items] == list(ids[:10])
        rest = repos.trials.page(job.id, limit=10, cursor=first.next_cursor)
        assert [(t.round, t.ordinal) for t in rest.items] == [(1, 10), (1, 11), (2, 0), (2, 1), (2, 2)]
        assert rest.next_cursor is None
        assert repos.trials.of_task(job.id, 1) == rest.items[2:]
        assert repos.trials.page(job.id, position=1, outcome="ok").items == rest.items[2:]
        assert repos.trials.page(job.id, outcome="run-crash").items == ()
        for cursor in ("1", "x-1", "1-", "-1-2", "1" * 30):
            with pytest.raises(InvalidInputError):
                repos.trials.page(job.id, cursor=cursor)


def test_nothing_is_measured_twice(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    job, other = seed.job(), seed.job(seed=8)
    with uow.write() as repos:
        repos.trials.add_many(job.id, 1, [new_trial(0), new_trial(1)])
        repos.trials.add_many(other.id, 1, [new_trial(0)])
        repos.trials.add_many(job.id, 2, [new_trial(0, position=1)])
    for round_, trial in ((1, new_trial(1, config_key="new")), (3, new_trial(0, config_key="[0,[1]]"))):
        with pytest.raises(ConflictError), uow.write() as repos:
            repos.trials.add_many(job.id, round_, [trial])
    with uow.read() as repos:
        assert len(repos.trials.page(job.id).items) == 3


def test_an_infrastructure_error_may_be_tried_again(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    job = seed.job()
    lost = new_trial(0, outcome="infrastructure-error", cost_sec=None, message="the device went away")
    with uow.write() as repos:
        repos.trials.add_many(job.id, 1, [lost])
        repos.trials.add_many(job.id, 2, [lost])
        repos.trials.add_many(job.id, 3, [new_trial(0)])
    with uow.read() as repos:
        assert repos.trials.outcomes(job.id) == {0: {"infrastructure-error": 2, "ok": 1}}


def test_records_round_trip(uow: UnitOfWork, seed: Any, new_record: Any, new_trial: Any) -> None:
    job, device = seed.job(), seed.device()
    record = new_record(
        tuner="xgb",
        message="…",
        extra={"flops": 1e9},
        job_id=job.id,
        device_id=device.id,
        samples_sec=[3e-7, 1.5],
    )
    with uow.write() as repos:
        (record_id,) = repos.records.add_many([record])
        repos.trials.add_many(job.id, 1, [new_trial(0, record_id=record_id)])
    with uow.read() as repos:
        (stored,) = repos.records.for_job(job.id)
        assert repos.trials.page(job.id).items[0].record_id == stored.id == record_id
    for name in ("config", "samples_sec", "extra", "device_id", "measured_at", "cost_sec", "message"):
        assert getattr(stored, name) == getattr(record, name)


def test_best_agrees_with_a_scan(uow: UnitOfWork, new_record: Any) -> None:
    rng = random.Random(7)
    records = [
        new_record(
            workload_key=f"w{rng.randrange(120)}",
            cost_sec=rng.choice([None, rng.random()]),
            target_key=rng.choice(["llvm", "cuda"]),
            device_model=rng.choice(["cpu-model", "other"]),
            toolchain=rng.choice(["tvm-1", "tvm-2"]),
        )
        for _ in range(3000)
    ]
    expected: dict[str, float] = {}
    for record in records:
        here = (record.target_key, record.device_model, record.toolchain) == tuple(WHERE.values())
        if here and record.cost_sec is not None:
            held = expected.get(record.workload_key, float("inf"))
            expected[record.workload_key] = min(held, record.cost_sec)
    wanted = [f"w{n}" for n in range(110)] + ["unknown"]
    with uow.write() as repos:
        repos.records.add_many(records)
    with uow.read() as repos:
        best = repos.records.best(wanted, **WHERE)
        assert {key: record.cost_sec for key, record in best.items()} == {
            key: cost for key, cost in expected.items() if key in wanted
        }
        assert set(repos.records.best(["w1"], **WHERE)) <= {"w1"}
        assert repos.records.best([], **WHERE) == {}
        assert repos.records.best_costs([], **WHERE) == {}
        costs = repos.records.best_costs(wanted, **WHERE)
        assert costs == {key: record.cost_sec for key, record in best.items()}
        assert repos.records.by_ids([record.id for record in best.values()] + ["none"]) == {
            record.id: record for record in best.values()
        }
        assert repos.records.by_ids([]) == {}


def add_many_records(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        repos.records.add_many(
            [new_record(workload_key=f"w{n % 50}", cost_sec=1e-3 + n) for n in range(5000)]
        )


def plan_of(uow: UnitOfWork, ask: Callable[[Repositories], None], table: str = "records") -> str:
    """Return how the database answers the last query of a table by `ask`."""
    seen: list[tuple[str, Any]] = []
    event.listen(
        uow.engine, "before_cursor_execute", lambda _c, _k, sql, params, *_: seen.append((sql, params))
    )
    with uow.read() as repos:
        ask(repos)
    sql, params = next(statement for statement in reversed(seen) if table in statement[0])
    explain = "EXPLAIN " if uow.engine.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
    with uow.engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")
        return "\n".join(str(row) for row in connection.exec_driver_sql(explain + sql, params))


def test_best_is_a_seek_in_the_index(uow: UnitOfWork, new_record: Any) -> None:
    """The query's time stays flat because its plan reads the best record's index entry, and sorts nothing."""
    add_many_records(uow, new_record)

    def ask(repos: Repositories) -> None:
        assert len(repos.records.best([f"w{n}" for n in range(20)], **WHERE)) == 20

    def ask_costs(repos: Repositories) -> None:
        assert len(repos.records.best_costs([f"w{n}" for n in range(20)], **WHERE)) == 20

    for plan in (plan_of(uow, ask), plan_of(uow, ask_costs)):
        assert "ix_records_best" in plan, plan
        assert "Sort" not in plan, plan
        assert "TEMP B-TREE" not in plan, plan
        # Each record that is returned is looked up by its id, too. (PostgreSQL reads small tables through instead.)
        assert not re.search(r"SCAN (records|fast)|Seq Scan on records fast", plan), plan


def test_best_records_by_pages(uow: UnitOfWork, new_record: Any) -> None:
    rng, expected, records = random.Random(1), {}, []
    for _ in range(300):
        cost_sec = rng.choice([None, rng.uniform(1e-4, 1e-2)])
        scope = (f"w{rng.randrange(4)}", rng.choice("tu"), rng.choice("mn"), rng.choice("ab"))
        names = ("workload_key", "target_key", "device_model", "toolchain")
        changes = dict(zip(names, scope, strict=True))
        records.append(new_record(cost_sec=cost_sec, config=[0, [len(records)]], **changes))
        if cost_sec is not None:
            expected[scope] = min(cost_sec, expected.get(scope, cost_sec))
    with uow.write() as repos:
        repos.records.add_many(records)
    with uow.read() as repos:

        def walk(limit: int, **wanted: str) -> dict[tuple[str, ...], float | None]:
            best, cursor = {}, None
            while True:
                page = repos.records.best_page(RecordFilter(**wanted), cursor=cursor, limit=limit)
                assert len(page.items) <= limit
                for r in page.items:
                    scope = (r.workload_key, r.target_key, r.device_model, r.toolchain)
                    assert scope not in best
                    best[scope] = r.cost_sec
                cursor = page.next_cursor
                if cursor is None:
                    return best

        for limit in (1, 7, 500):
            assert walk(limit) == expected
        assert list(walk(3)) == sorted(expected)
        assert walk(2, device_model="m", toolchain="b") == {
            scope: cost for scope, cost in expected.items() if scope[2:] == ("m", "b")
        }
        assert walk(2, workload_key="none") == {}
        with pytest.raises(InvalidInputError) as caught:
            repos.records.best_page(cursor="rec_none")
        assert caught.value.code == "invalid-cursor"


def test_the_best_by_pages_are_seeks_in_the_index(uow: UnitOfWork, new_record: Any) -> None:
    add_many_records(uow, new_record)

    def ask(repos: Repositories) -> None:
        assert len(repos.records.best_page(limit=20).items) == 20

    plan = plan_of(uow, ask)
    assert "ix_records_best" in plan, plan
    assert "Sort" not in plan
    assert "TEMP B-TREE" not in plan


def test_top_and_history(uow: UnitOfWork, new_record: Any) -> None:
    costs = [5e-3, None, 1e-3, 3e-3]
    with uow.write() as repos:
        repos.records.add_many([new_record(cost_sec=c, space_key=f"s{n % 2}") for n, c in enumerate(costs)])
        repos.records.add_many([new_record(workload_key="w2", cost_sec=1e-9)])
    with uow.read() as repos:
        top = repos.records.top("w1", limit=2, **WHERE)
        assert [r.cost_sec for r in top] == [1e-3, 3e-3]
        assert [r.cost_sec for r in repos.records.top("w1", space_key="s1", **WHERE)] == [3e-3]
        ids = repos.records.history_ids("w1", **WHERE)
        assert [repos.records.by_ids(ids)[record_id].cost_sec for record_id in ids] == costs[::-1]
        (only,) = repos.records.history_ids("w1", space_key="s0", limit=1, **WHERE)
        assert repos.records.by_ids([only])[only].cost_sec == 1e-3


def test_who_may_win(uow: UnitOfWork, new_record: Any) -> None:
    """The fastest records of each workload, and all valid confirmations, including failed and slow ones."""
    here = dict(WHERE)

    def config(number: int) -> list[Any]:
        return [0, [number]]

    with uow.write() as repos:
        repos.records.add_many(
            [new_record("a", cost_sec=1e-3 * n, config=config(n), **here) for n in range(1, 6)]
            + [new_record("b", cost_sec=7e-3, config=config(1), **here)]
            + [new_record("a", cost_sec=1e-6, config=config(9), **{**here, "device_model": "another"})]
        )
        repos.records.add_many(
            [
                new_record("a", cost_sec=None, outcome="run-crash", config=config(1), confirmed=True, **here),
                new_record("a", cost_sec=9e-3, config=config(2), confirmed=True, **here),
            ]
        )
        repos.records.add_many([new_record("a", cost_sec=8e-3, config=config(2), confirmed=True, **here)])
        winners = repos.records.possible_winners(["a", "b", "none"], **here, limit=2)
    assert winners.keys() == {"a", "b"}
    assert [r.cost_sec for r in winners["b"]] == [7e-3]
    assert [(r.cost_sec, r.confirmed) for r in winners["a"]] == [
        (3e-3, False),
        (4e-3, False),
        (None, True),
        (8e-3, True),
    ]


def test_query_filters_and_pages(uow: UnitOfWork, seed: Any, new_record: Any) -> None:
    job = seed.job()
    with uow.write() as repos:
        ids = repos.records.add_many([new_record(workload_key=f"w{n % 2}", job_id=job.id) for n in range(6)])
        repos.records.add_many([new_record(cost_sec=None)])
    with uow.read() as repos:
        wanted = RecordFilter(job_id=job.id, workload_key="w1", outcome="ok", **WHERE)
        first = repos.records.query(wanted, limit=2)
        assert [r.id for r in first.items] == [ids[5], ids[3]]
        assert [r.id for r in repos.records.query(wanted, limit=2, cursor=first.next_cursor).items] == [
            ids[1]
        ]
        assert len(repos.records.query().items) == 7


def test_losses_in_a_row(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    """Trials at which the device was lost, since one of the job ended by itself."""
    model = seed.model()
    job, other = seed.job(model), seed.job(model)
    gone = {"outcome": "infrastructure-error", "cost_sec": None, "message": "gone"}

    def after(*trials: Any, of: Any = job, number: int) -> int:
        with uow.write() as repos:
            repos.trials.add_many(of.id, number, trials)
            return int(repos.trials.losses_in_a_row(job.id))

    assert after(number=0) == 0
    assert after(new_trial(0, **gone), new_trial(1, run_sec=0.0, **gone), number=1) == 1
    assert after(new_trial(0, **gone), number=2) == 2
    assert after(new_trial(5, **gone), of=other, number=2) == 2
    assert after(new_trial(2, outcome="build-error", cost_sec=None), new_trial(3, **gone), number=3) == 0
    assert after(new_trial(0, **gone), number=4) == 1


def test_what_a_tuner_must_know_of_a_task(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    """Trials that the infrastructure spoiled are in it, in their place, and it is read in the indexes."""
    job = seed.job()
    rounds = [("ok", "infrastructure-error"), ("run-crash", "ok"), ("infrastructure-error", "ok")]
    with uow.write() as repos:
        for number, outcomes in enumerate(rounds):
            trials = [
                new_trial(ordinal, position=1, config_key=f"[0,[{number},{ordinal}]]", outcome=outcome)
                for ordinal, outcome in enumerate(outcomes)
            ]
            repos.trials.add_many(job.id, number, trials)
    with uow.read() as repos:
        tried, all_trials = repos.trials.tried(job.id, 1), repos.trials.of_task(job.id, 1)
        assert repos.trials.tried(job.id, 0) == ()
    assert [attempt.outcome for attempt in tried] == [outcome for outcomes in rounds for outcome in outcomes]
    for attempt, trial in zip(tried, all_trials, strict=True):
        for name in ("asked_key", "config_key", "outcome", "cost_sec", "run_sec"):
            assert getattr(attempt, name) == getattr(trial, name)
    plan = plan_of(uow, lambda repos: repos.trials.tried(job.id, 1), "trials")
    if uow.engine.dialect.name == "sqlite":  # PostgreSQL reads small tables through
        assert "uq_trials_job_id_position_config_key" in plan
        assert "ix_trials_lost" in plan


def test_newest_records_of_a_rare_kind_are_found_in_an_index(uow: UnitOfWork, new_record: Any) -> None:
    add_many_records(uow, new_record)
    filters = [
        RecordFilter(target_key="none"),
        RecordFilter(device_model="none"),
        RecordFilter(toolchain="none"),
        RecordFilter(outcome="wrong-answer"),
    ]
    for wanted in filters:
        plan = plan_of(uow, lambda repos, wanted=wanted: repos.records.query(wanted))
        assert not re.search(r"SCAN records|Seq Scan on records", plan), plan


def test_records_of_another_job_are_told_apart(uow: UnitOfWork, seed: Any, new_record: Any) -> None:
    own, other = seed.job(), seed.job(tuner="random")
    with uow.write() as repos:
        mine = repos.records.add_many([new_record("w1", job_id=own.id) for _ in range(3)])
        theirs = repos.records.add_many([new_record("w1", job_id=other.id, config=[0, [9]])])
        nobodys = repos.records.add_many([new_record("w1", config=[0, [10]])])
    with uow.read() as repos:
        assert repos.records.history_ids("w1", except_job=own.id, **WHERE) == (*nobodys, *theirs)
        assert repos.records.history_ids("w1", except_job=own.id, limit=1, **WHERE) == nobodys
        assert set(mine) <= set(repos.records.history_ids("w1", **WHERE))
