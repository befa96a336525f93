"""The extract step: extracts a job's tuning tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from tunefarm_app.jobs.drafts import plan_draft
from tunefarm_app.jobs.transitions import enter_compiling, enter_tuning
from tunefarm_app.jobs.whole_budget import with_search_time
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.models.quantised import job_pipeline, make_job_model
from tunefarm_app.steps.new_workloads import check_new_workloads
from tunefarm_app.storage.job_options import precision_of, searches
from tunefarm_app.storage.pipelines import CPU, share_tasks, shares_tasks_of_any_cpu
from tunefarm_app.storage.rows import store_tasks
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import ModelTask
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload import revisions
from tunefarm_tuning.workload.task import TuningTask

log = structlog.stdlib.get_logger(__name__)


def run_extract(context: StepContext) -> None:
    """Extract the kernels to tune, unless they are stored, and plan the job's first round, or its compile.

    Raises:
        InvalidModelError: If the model does not compile for the target; the job fails with it.
    """
    began = time.monotonic()
    with context.note() as repos:
        job = context.job(repos)
        if job.state is JobState.QUEUED:
            job = repos.jobs.move(job.id, JobState.EXTRACTING, progress={"phase": "extracting"})
            repos.events.add(job.id, "phase", {"phase": "extracting"})
        row = repos.models.get(job.model_id)
        target, precision = Target.from_json(job.target), precision_of(job)
        pipeline = job_pipeline(job)
        known = _known_tasks(context, repos, row.id, pipeline)
        if not known and shares_tasks_of_any_cpu(target, pipeline, row.operators):
            share_tasks(repos, row.id, pipeline, _known_tasks(context, repos, row.id, CPU))
            known = _known_tasks(context, repos, row.id, pipeline)
    model = make_job_model(context, job, row)
    extracted: Sequence[TuningTask] = ()
    if not known:
        extracted = context.engine.extract_tasks(
            model,
            target,
            precision=precision.of_network,
            cancellation=context.cancellation,
        )
        check_new_workloads(context, extracted)
    with context.commit() as repos:
        job = context.job(repos)
        if not known:
            store_tasks(repos, row.id, pipeline, context.engine.toolchain, extracted)
            known = _known_tasks(context, repos, row.id, pipeline)
        repos.jobs.add_tasks(job.id, known)
        if not known:
            enter_compiling(context, repos, job, stop_reason="no-tasks")
        elif not searches(job):
            enter_compiling(context, repos, job, stop_reason="no-search")
        elif job.stop_reason is not None:  # finished before it began
            enter_compiling(context, repos, job, stop_reason=job.stop_reason)
        else:
            with_search_time(repos, job, kernels=len(known), extract_sec=time.monotonic() - began)
            enter_tuning(context, repos, job, tasks=len(known))
            plan_draft(context, repos, job)
    log.info("tasks extracted", tasks=len(known))


def _known_tasks(
    context: StepContext, repos: Repositories, model_id: str, pipeline: str
) -> tuple[ModelTask, ...]:
    return repos.models.tasks(
        model_id, pipeline=pipeline, toolchain=context.engine.toolchain, revision=revisions.GRAPH_PASSES
    )
