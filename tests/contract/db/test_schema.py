"""The migrations make the schema that the code declares, on both databases."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import JSON, Connection, inspect, text

from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import Base
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import NewSweepCell, StepKind
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload import revisions


def test_migrations_and_tables_agree(database_url: str) -> None:
    schema.upgrade(database_url)
    engine = make_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_partial_indexes_are_partial(database_url: str) -> None:
    """Alembic does not compare an index's WHERE."""
    schema.upgrade(database_url)
    engine = make_engine(database_url)
    conditions = {
        index["name"]: index["dialect_options"].get(f"{engine.dialect.name}_where")
        for table in ("models", "records", "trials", "webhook_deliveries")
        for index in inspect(engine).get_indexes(table)
    }
    engine.dispose()
    for name in (
        "uq_models_name_version",
        "uq_models_sha256_shapes_key",
        "ix_records_best",
        "ix_records_confirmed",
        "ix_records_failed",
        "ix_trials_lost",
        "uq_trials_job_id_position_config_key",
        "ix_webhook_deliveries_pending",
    ):
        assert conditions[name] is not None, name


def test_up_and_down_and_up(database_url: str) -> None:
    engine = make_engine(database_url)
    assert schema.current(engine) is None
    with pytest.raises(ConflictError, match="tunefarm db upgrade") as outdated:
        schema.check_schema(engine)
    assert outdated.value.code == "schema-outdated"

    schema.upgrade(database_url)
    schema.upgrade(database_url)  # again: nothing to do
    assert schema.current(engine) == schema.head()
    schema.check_schema(engine)

    schema.downgrade(database_url, "base")
    assert schema.current(engine) is None
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    schema.upgrade(database_url)
    schema.check_schema(engine)
    engine.dispose()


def test_of_several_rounds_the_older_program_finds_one_after_all_others(database_url: str, seed: Any) -> None:
    """It knows one open step of a job, and plans the round after it."""
    tracks, single = (seed.job(seed=number) for number in range(2))
    for number in range(4):
        seed.step(tracks, round=number)
    last = seed.step(single)
    with seed.uow.write() as repos:
        steps = repos.steps.for_job(tracks.id)
        for step in (steps[0], steps[3]):
            held = repos.steps.claim(step.id, "me", 60.0)
            repos.steps.finish(held.id, held.fence)
        repos.steps.claim(steps[1].id, "me", 60.0)
    schema.downgrade(database_url, "0005")
    with seed.uow.engine.connect() as connection:
        query = text("SELECT id, round, state, lease_owner FROM steps ORDER BY id")
        assert [tuple(row) for row in connection.execute(query)] == [
            (steps[0].id, 0, "done", None),
            (steps[1].id, 1, "cancelled", None),
            (steps[2].id, 4, "ready", None),
            (steps[3].id, 3, "done", None),
            (last.id, 0, "ready", None),
        ]


def test_the_spaces_of_jobs_survive_their_move(database_url: str) -> None:
    schema.upgrade(database_url, "0001")
    engine = make_engine(database_url)
    with engine.begin() as connection:
        _fill_0001(connection)
    schema.upgrade(database_url)
    with engine.connect() as connection:
        spaces = connection.execute(
            text("SELECT workload_key, target_key, space, space_key, family FROM config_spaces ORDER BY 1, 2")
        ).all()
        assert [tuple(row[:2]) + tuple(row[3:]) for row in spaces] == [
            ("w1", "llvm", "new", None),
            ("w1", "other", "else", None),
            ("w2", "llvm", "second", None),
        ]
        assert "job_2" in str(spaces[0][2])  # of two jobs the later one's
        flags = connection.execute(text("SELECT confirmed, superseded FROM records")).all()
        assert [tuple(map(bool, row)) for row in flags] == [(False, False)]
    schema.downgrade(database_url, "0001")
    with engine.connect() as connection:
        query = text("SELECT job_id, position, space FROM job_tasks ORDER BY 1, 2")
        kept = [(job, position, space is not None) for job, position, space in connection.execute(query)]
    # That of the older job was another space, and is gone.
    assert kept == [("job_1", 0, False), ("job_2", 0, True), ("job_2", 1, True), ("job_3", 0, True)]
    engine.dispose()


def test_jobs_get_the_numbers_of_their_reports_and_models_their_versions(database_url: str) -> None:
    schema.upgrade(database_url, "0021")
    engine = make_engine(database_url)
    seconds = {"tuned": 0.1, "untuned": 0.4, "onnxruntime": 0.3, "torch_compile": 0.2}
    latency: dict[str, Any] = {name: {"median_sec": sec} for name, sec in seconds.items()}
    noted = {**latency, "torch_compile": None, "ratios": {"untuned": {"value": 4.0, "low": 3.0, "high": 5.0}}}
    reports: list[Any] = [{"latency": latency}, {"latency": noted}, {"latency": {"tuned": 3}}, {}]
    with engine.begin() as connection:
        for number, name in enumerate(("ocr", "asr", "ocr"), 1):
            _insert(connection, "models", id=f"mdl_{number}", name=name, sha256=str(number), state="ready")
        for number, report in enumerate(reports):
            _insert(connection, "jobs", id=f"job_{number}", model_id="mdl_1", state="succeeded")
            _insert(connection, "blobs", sha256=str(number))
            artifact = {"id": f"art_{number}", "job_id": f"job_{number}", "sha256": str(number)}
            _insert(connection, "artifacts", **artifact, report=json.dumps(report))
    schema.upgrade(database_url)
    with UnitOfWork(engine).read() as repos:
        jobs = [repos.jobs.get(f"job_{number}") for number in range(len(reports))]
        assert [repos.models.get(f"mdl_{number}").version for number in (1, 2, 3)] == [1, 1, 2]
    assert [job.network_latency_sec for job in jobs] == [0.1, 0.1, None, None]
    assert [job.over_untuned for job in jobs] == [4.0, 4.0, None, None]
    assert [job.over_runtime for job in jobs] == [pytest.approx(2.0), pytest.approx(3.0), None, None]
    assert jobs[1].speedups["untuned"] == {"value": 4.0, "low": 3.0, "high": 5.0}
    assert set(jobs[0].speedups) == {"untuned", "onnxruntime", "torch_compile"}
    assert jobs[2].speedups == jobs[3].speedups == {}
    assert all((job.tags, job.note) == ([], "") for job in jobs)
    schema.downgrade(database_url, "0021")
    engine.dispose()


def test_an_older_release_reads_the_budgets_of_all_jobs(database_url: str, seed: Any) -> None:
    budgets: list[dict[str, Any]] = [{}, {"job_sec": 60.0, "wall_sec": None}, {"trials": 8}, {}]
    jobs = [seed.job(budget=budget, seed=number) for number, budget in enumerate(budgets)]
    steps = [seed.step(job, kind=StepKind.COMPILE) for job in jobs]
    with seed.uow.write() as repos:
        repos.jobs.move(jobs[3].id, JobState.FAILED)
    schema.downgrade(database_url, "0020")
    with seed.uow.engine.connect() as connection:
        rows = connection.execute(text("SELECT budget, state FROM jobs ORDER BY id")).all()
        states = connection.execute(text("SELECT state FROM steps ORDER BY id")).scalars().all()
    read = [json.loads(budget) if isinstance(budget, str) else budget for budget, _ in rows]
    assert [Budget.from_json(budget).to_json() for budget in read] == [
        Budget(trials=1).to_json(),
        Budget(wall_sec=60.0).to_json(),
        Budget(trials=8).to_json(),
        Budget(trials=1).to_json(),
    ]
    assert [state for _, state in rows] == ["cancelled", "queued", "queued", "failed"]
    assert states == ["cancelled", "ready", "ready", "ready"]
    assert len(steps) == 4


def test_an_older_release_keeps_the_jobs_of_a_sweep(database_url: str, seed: Any) -> None:
    job = seed.job()
    with seed.uow.write() as repos:
        sweep = repos.sweeps.add(budget={}, tags=[], note="", idempotency_key=None, request_digest="d")
        cell = NewSweepCell(
            model_id=job.model_id, model_name="net", device_key="cpu", precision="as-model", job_id=job.id
        )
        repos.sweeps.add_cells(sweep.id, [cell])
    schema.downgrade(database_url, "0022")
    schema.upgrade(database_url)
    with seed.uow.read() as repos:
        assert repos.jobs.get(job.id) == job
        assert repos.sweeps.list().items == ()


def test_what_an_older_release_found_is_of_no_present_revision(database_url: str) -> None:
    """It is shown, and learned from, until a job makes it anew; see tests/unit/app/steps/test_older_revisions.py."""
    schema.upgrade(database_url, "0014")
    engine = make_engine(database_url)
    with engine.begin() as connection:
        _insert(connection, "models", id="mdl_1", state="failed")
        _insert(connection, "workloads", key="w1", toolchain="t", args="[]")
        _insert(connection, "model_tasks", model_id="mdl_1", pipeline="cpu", toolchain="t", workload_key="w1")
        scope = {"workload_key": "w1", "target_key": "llvm", "toolchain": "t"}
        _insert(connection, "config_spaces", **scope, space_key="four knobs", family="conv", extents="[]")
    schema.upgrade(database_url)
    with UnitOfWork(engine).write() as repos:
        assert repos.models.get("mdl_1").revision == 0
        (old,) = repos.models.tasks("mdl_1", pipeline="cpu", toolchain="t")
        extraction = {"pipeline": "cpu", "toolchain": "t", "revision": revisions.GRAPH_PASSES}
        assert repos.models.tasks("mdl_1", **extraction) == ()
        repos.models.set_tasks("mdl_1", **extraction, tasks=[("w1", 2)])
        assert repos.models.tasks("mdl_1", **extraction) == (replace(old, weight=2),)
        space = repos.spaces.get("w1", target_key="llvm", toolchain="t")
        assert space is not None
        assert space.revision == 0
        newer = replace(space, space_key="five knobs", revision=revisions.SPACES)
        repos.spaces.put(newer)
        assert repos.spaces.get("w1", target_key="llvm", toolchain="t") == newer
    schema.downgrade(database_url, "0014")
    with engine.connect() as connection:
        # The older release would take them for its own.
        assert connection.execute(text("SELECT count(*) FROM model_tasks")).scalar() == 0
        assert connection.execute(text("SELECT family FROM config_spaces")).all() == [(None,)]
    engine.dispose()


def test_what_was_imported_before_imports_counted_counts(database_url: str) -> None:
    """As many bytes as its line of JSON has, nearly."""
    record = TuningRecord(
        workload_key="w" * 32,
        target_key="llvm -mcpu=x86-64-v3 -num-cores=4",
        device_model="amd-epyc-f25m17-4c",
        toolchain="tvm-0.27.0.post1",
        space_key="s" * 32,
        config=Config(7, ((4, 8, 16, 1), 64) * 12),
        outcome=Outcome.OK,
        samples_sec=(0.000123, 0.000124, 0.0001255) * 20,
        build_sec=1.234567,
        measured_at=1764500000.123,
        tuner="evolutionary",
        message="",
        extra={"fence": 12},
    )
    schema.upgrade(database_url, "0035")
    engine = make_engine(database_url)
    with engine.begin() as connection:
        _insert(connection, "workloads", key=record.workload_key, toolchain=record.toolchain, args="[]")
        texts = ("workload_key", "target_key", "device_model", "toolchain", "space_key", "outcome", "tuner")
        lists = {"config": record.config.to_json(), "samples_sec": record.samples_sec, "extra": record.extra}
        values = {
            **{name: str(getattr(record, name)) for name in texts},
            **{name: json.dumps(value) for name, value in lists.items()},
        }
        _insert(connection, "records", id="rec_imported", owner="a key", **values)
        _insert(connection, "records", id="rec_measured", **values)
    schema.upgrade(database_url)
    with engine.connect() as connection:
        sizes = dict(connection.execute(text("SELECT id, size_bytes FROM records")).all())
    assert sizes["rec_measured"] is None
    assert sizes["rec_imported"] == pytest.approx(len(record.to_json()), rel=0.15)
    with UnitOfWork(engine).read() as repos:
        assert repos.usage.size_bytes("a key") == sizes["rec_imported"]
    engine.dispose()


def _insert(connection: Connection, table: str, **values: object) -> None:
    """Insert a row; a column that must not be NULL has a value that means nothing unless it is given."""
    needed = [c for c in inspect(connection).get_columns(table) if not c["nullable"]]
    nothing = {c["name"]: "{}" if isinstance(c["type"], JSON) else c["type"].python_type() for c in needed}
    row = {**nothing, **values}
    places = ", ".join(f":{name}" for name in row)
    columns = ", ".join(f'"{name}"' for name in row)
    connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({places})"), row)


def _fill_0001(connection: Connection) -> None:
    """Three jobs as the first schema stored them: two on one target, one on another."""
    insert = partial(_insert, connection)
    for key in ("w1", "w2"):
        insert("workloads", key=key, toolchain="t")
    insert("models", id="mdl_1")
    tasks = [
        ("job_1", "llvm", 0, "w1", "old"),
        ("job_2", "llvm", 0, "w1", "new"),
        ("job_2", "llvm", 1, "w2", "second"),
        ("job_3", "other", 0, "w1", "else"),
    ]
    for job_id, target_key in {(task[0], task[1]) for task in tasks}:
        insert("jobs", id=job_id, model_id="mdl_1", target_key=target_key)
    for job_id, _, position, workload_key, space_key in tasks:
        insert(
            "job_tasks",
            job_id=job_id,
            position=position,
            workload_key=workload_key,
            toolchain="t",
            space=f'{{"of": "{job_id}"}}',
            space_key=space_key,
        )
    insert("records", id="rec_1", workload_key="w1", target_key="llvm", toolchain="t", cost_sec=1.0)


def test_processes_may_upgrade_at_once(database_url: str) -> None:
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for done in [pool.submit(schema.upgrade, database_url) for pool in (first, second)]:
            done.result(120)
    engine = make_engine(database_url)
    schema.check_schema(engine)
    engine.dispose()
