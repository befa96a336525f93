"""The queries that a farm sends to its database: in each round, in each tick, for lists and for metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.scale.fill import DEVICE_MODEL, POOL, TARGETS, TOOLCHAIN, Filled

from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import StepKind

Question = Callable[[Repositories], Any]


def questions(of: Filled) -> dict[str, dict[str, Question]]:
    """Return the questions by who asks."""
    device = {"target_key": TARGETS[0], "device_model": DEVICE_MODEL, "toolchain": TOOLCHAIN}
    keys, job = of.workload_keys, of.long_job

    def cost_model_reads(repos: Repositories) -> int:
        outlines = repos.transfer.outlines(keys[0], family="conv2d", extents=(64, 56, 56), **device)
        return sum(len(repos.records.by_ids(outline.record_ids)) for outline in outlines)

    return {
        "a round of the long job": {
            "the job, its tasks": lambda r: (r.jobs.get(job), r.jobs.tasks(job)),
            "operations of the tasks": lambda r: r.models.flops(
                of.model, pipeline="cpu", toolchain=TOOLCHAIN
            ),
            "best records of 20 tasks": lambda r: r.records.best(keys, **device),
            "best costs of 20 tasks": lambda r: r.records.best_costs(keys, **device),
            "possible winners of 20 tasks": lambda r: r.records.possible_winners(keys, limit=8, **device),
            "trials of the task (1,000)": lambda r: r.trials.tried(job, 0),
            "512 records of the workload": lambda r: r.records.by_ids(
                r.records.history_ids(keys[0], limit=512, **device)
            ),
            "what the cost model learns from": cost_model_reads,
            "workload and space": lambda r: (
                r.workloads.get(keys[0], TOOLCHAIN),
                r.spaces.get(keys[0], target_key=TARGETS[0], toolchain=TOOLCHAIN),
            ),
            "who waits for a device": lambda r: (
                r.turns.ahead_of(job, POOL),
                r.turns.waiting(POOL),
                r.devices.counts(POOL),
            ),
            "the job's open steps": lambda r: (r.steps.open_ids(job), r.steps.in_flight(job)),
            "the next round's number": lambda r: r.steps.next_round(StepKind.TUNE, job),
            "known configs": lambda r: r.trials.known(job, 0, [f"[0,[{n}]]" for n in range(8)]),
            "a step, as a lease looks": lambda r: r.steps.at_work(job),
        },
        "the reconciler's tick": {
            "due steps": lambda r: r.steps.due(500),
            "jobs to be cancelled": lambda r: r.jobs.open(cancel_requested=True),
        },
        "the API": {
            "jobs, first page": lambda r: r.jobs.list(limit=50),
            "jobs of a state": lambda r: r.jobs.list(state=_succeeded(), limit=50),
            "jobs of a model": lambda r: r.jobs.list(model_id=of.model, limit=50),
            "a job's outcomes by task": lambda r: r.trials.outcomes(job),
            "a job's trials, first page": lambda r: r.trials.page(job, limit=50),
            "a job's trials, last page": lambda r: r.trials.page(job, cursor="2490-7", limit=50),
            "a task's trials": lambda r: r.trials.page(job, position=19, limit=50),
            "a job's failed trials": lambda r: r.trials.page(job, outcome="run-timeout", limit=50),
            "a job's events, last": lambda r: r.events.after(job, 2490, limit=500),
            "tasks and steps of a page of jobs": lambda r: (
                r.jobs.count_tasks([job, of.done_job]),
                r.steps.open_of([job, of.done_job]),
            ),
            "records, first page": lambda r: r.records.query(limit=50),
            "records of a job": lambda r: r.records.query(RecordFilter(job_id=of.done_job), limit=50),
            "records of a workload": lambda r: r.records.query(RecordFilter(workload_key=keys[0]), limit=50),
            "records of a device model": lambda r: r.records.query(
                RecordFilter(device_model=DEVICE_MODEL), limit=50
            ),
            "records of a target": lambda r: r.records.query(RecordFilter(target_key=TARGETS[1]), limit=50),
            "records of a target that is not there": lambda r: r.records.query(
                RecordFilter(target_key="none"), limit=50
            ),
            "records of a device model that is not there": lambda r: r.records.query(
                RecordFilter(device_model="none"), limit=50
            ),
            "records of an outcome that is rare": lambda r: r.records.query(
                RecordFilter(outcome="wrong-answer"), limit=50
            ),
            "a page of an export (500)": lambda r: r.records.query(limit=500),
            "best records, first page": lambda r: r.records.best_page(limit=50),
            "best records of a target": lambda r: r.records.best_page(
                RecordFilter(target_key=TARGETS[1]), limit=50
            ),
            "best records of a device model that is not there": lambda r: r.records.best_page(
                RecordFilter(device_model="none"), limit=50
            ),
            "a page of an export of the best (500)": lambda r: r.records.best_page(limit=500),
        },
        "the metrics, and the hourly sweep": {
            "open steps": lambda r: r.statistics.open_steps(),
            "jobs by state": lambda r: r.statistics.jobs_by_state(),
            "devices": lambda r: r.statistics.devices(),
            "counters": lambda r: r.counters.all(),
            "size of the database": lambda r: r.statistics.database_bytes(),
            "unused models": lambda r: r.retention.unused_models(86400.0, limit=100),
            "old artifacts": lambda r: r.retention.old_artifacts(86400.0),
            "500 old messages of failures": lambda r: r.retention.failures_with_messages(0.0, limit=500),
            "old messages, none left": lambda r: r.retention.failures_with_messages(86400.0, limit=500),
        },
    }


def _succeeded() -> Any:
    from tunefarm_db.states.job import JobState

    return JobState.SUCCEEDED
