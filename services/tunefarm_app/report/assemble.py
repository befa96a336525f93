"""Assemble a job's report from the database. It does not depend on the time of the request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import structlog

from tunefarm_app.models.stored_file import stored_file_end
from tunefarm_app.records.rooflines import TimedKernel, kernel_roofline, task_computations, trusted_peak
from tunefarm_app.report.contradictions import contradictions
from tunefarm_app.report.document import (
    FORMAT,
    FORMAT_VERSION,
    JobReport,
    ReportCoverage,
    ReportedArtifact,
    ReportedJob,
    ReportedModel,
    ReportedTarget,
    ReportKernel,
)
from tunefarm_app.report.evidence import Evidence
from tunefarm_app.report.libraries import libraries_ahead
from tunefarm_app.report.measurements import measurements_of
from tunefarm_app.report.networks import networks_of
from tunefarm_app.report.numbers import (
    KernelNumbers,
    breakdown,
    kernel_numbers,
    reason_of,
    untried_sentence,
)
from tunefarm_app.report.peak_sections import ReportPeak, ReportRoofline
from tunefarm_app.report.reproduce import reproduce
from tunefarm_app.report.sentences import caveats, not_measured, summary
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.job_options import searches
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Artifact, Job, JobTask, Model, Workload
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.workload.computation import Computation

log = structlog.stdlib.get_logger(__name__)

Outcomes = Mapping[int, Mapping[str, int]]


def job_report(services: Services, job_id: str) -> JobReport:
    """Return the report of a job that succeeded, failed or was cancelled.

    Raises:
        NotFoundError: If there is no such job.
        ConflictError: If it has not ended (code not-finished).
    """
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        if not job.state.is_finished:
            raise ConflictError(
                f"the job {job.state.clause}: its report comes when it has ended",
                code="not-finished",
                state=job.state.value,
            )
        model = repos.models.get(job.model_id, deleted=True)
        artifact = repos.artifacts.for_job(job_id)
        tasks = repos.jobs.tasks(job_id)
        outcomes = repos.trials.outcomes(job_id)
        workloads = _workloads(repos, tasks)
        computations = task_computations(repos, job.target_key, tasks)
        networks = repos.network_timings.of(job_id)
    end = stored_file_end(services, model)
    report = assemble_report(job, model, artifact, tasks, outcomes, workloads, computations, end=end)
    return report.model_copy(update={"networks": networks_of(networks)})


def _workloads(repos: Repositories, tasks: Sequence[JobTask]) -> dict[str, Workload]:
    if not tasks:
        return {}
    return repos.workloads.get_many([task.workload_key for task in tasks], tasks[0].toolchain)


def assemble_report(
    job: Job,
    model: Model,
    artifact: Artifact | None,
    tasks: Sequence[JobTask],
    outcomes: Outcomes,
    workloads: Mapping[str, Workload],
    computations: Mapping[str, Computation],
    *,
    end: str | None = None,
) -> JobReport:
    """Return the report of what was read of a job; `outcomes` are the trials' by the task's position, `end` is that of the file's name."""
    evidence = Evidence(artifact.manifest, artifact.report) if artifact else Evidence({}, {})
    latency, numbers = evidence.latency(), kernel_numbers(tasks, evidence)
    timed = {
        task.position: _timed(task, numbers[task.position], workloads, computations, evidence)
        for task in tasks
    }
    peak = trusted_peak(evidence.peak(), [each for each in timed.values() if each is not None])
    kernels = [
        _kernel(task, numbers[task.position], timed[task.position], outcomes, workloads, peak)
        for task in tasks
    ]
    report = JobReport(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        simulated=evidence.report.get("simulated") is True,
        summary=[],
        job=ReportedJob.model_validate(job, from_attributes=True),
        model=ReportedModel.model_validate(model, from_attributes=True),
        target=ReportedTarget(key=job.target_key, attributes=job.target),
        toolchain=tasks[0].toolchain if tasks else None,
        device=evidence.device(),
        peak=_peak(peak),
        place=evidence.place(),
        artifact=_artifact(artifact) if artifact else None,
        latency=latency,
        measurements=measurements_of(artifact),
        shapes=evidence.shapes(),
        other_shapes=evidence.other_shapes(),
        hybrid=evidence.hybrid(),
        coverage=_coverage(evidence, tasks),
        kernels=kernels,
        not_tunable=evidence.not_tunable(),
        alternatives=evidence.alternatives(),
        libraries_ahead=libraries_ahead(evidence.alternatives()),
        networks_sec=evidence.networks_sec(),
        # Kernels of several sets of shapes are no parts of one latency.
        breakdown=None if evidence.shapes() else breakdown(latency, numbers.values()),
        outcomes=_total(outcomes),
        checks=evidence.checks(),
        precision=evidence.precision(),
        records=evidence.records(),
        method=evidence.texts("method"),
        not_measured=[],
        warnings=evidence.warnings(),
        versions=evidence.texts("versions"),
        phases_sec=evidence.seconds("phases_sec"),
        reused={kind: int(count) for kind, count in evidence.seconds("reused").items()},
        reproduce=reproduce(job, model, artifact, evidence, end=end),
    )
    unreadable = sorted(set(evidence.unreadable))
    broken = contradictions(report)
    if broken:
        log.error("a report contradicts itself", job_id=job.id, contradictions=broken)
    untried = untried_sentence(tasks, evidence.report) if searches(job) else ""
    return report.model_copy(
        update={
            "summary": summary(report),
            "not_measured": not_measured(report),
            "warnings": [
                *report.warnings,
                *caveats(report),
                *([untried] if untried else []),
                *(f"this report contradicts itself: {sentence}" for sentence in broken),
                *(f"a part of the compiler's report cannot be read: {name}" for name in unreadable),
            ],
        }
    )


def _artifact(artifact: Artifact) -> ReportedArtifact:
    features, machine = artifact.manifest.get("cpu_features"), artifact.manifest.get("machine")
    return ReportedArtifact(
        name=artifact.name,
        sha256=artifact.sha256,
        size_bytes=artifact.size_bytes,
        created_at=artifact.created_at,
        machine=machine if isinstance(machine, str) else None,
        cpu_features=[str(feature) for feature in features] if isinstance(features, list) else [],
    )


def _coverage(evidence: Evidence, tasks: Sequence[JobTask]) -> ReportCoverage | None:
    """Return the compiler's coverage; what was never tried is called that."""
    coverage = evidence.coverage()
    if coverage is None:
        return None
    by_key = {task.workload_key: task for task in tasks}
    misses = [
        miss.model_copy(update={"reason": reason_of(miss.reason, by_key[miss.workload_key])})
        if miss.workload_key in by_key
        else miss
        for miss in coverage.misses
    ]
    return coverage.model_copy(update={"misses": misses})


def _timed(
    task: JobTask,
    numbers: KernelNumbers,
    workloads: Mapping[str, Workload],
    computations: Mapping[str, Computation],
    evidence: Evidence,
) -> TimedKernel | None:
    """Return the task's kernel, as it was timed; None if an algorithm with fewer operations replaces it."""
    workload, use = workloads.get(task.workload_key), evidence.place()
    if numbers.algorithm is not None or workload is None:
        return None
    return TimedKernel(
        flops=workload.flops,
        cost_sec=numbers.call_sec if numbers.call_sec is not None else task.best_cost_sec,
        args=workload.args,
        computation=computations.get(task.workload_key),
        threads=use.threads if numbers.call_sec is not None and use else None,
    )


def _kernel(
    task: JobTask,
    numbers: KernelNumbers,
    timed: TimedKernel | None,
    outcomes: Outcomes,
    workloads: Mapping[str, Workload],
    peak: Peak | None,
) -> ReportKernel:
    workload = workloads.get(task.workload_key)
    stands = kernel_roofline(timed, peak) if timed is not None else None
    return ReportKernel(
        position=task.position,
        name=task.name,
        workload_key=task.workload_key,
        weight=task.weight,
        flops=workload.flops if workload else None,
        args=workload.args if workload else [],
        covered=numbers.covered,
        algorithm=numbers.algorithm,
        alternative=str(task.alternative["algorithm"]) if task.alternative is not None else None,
        reason=numbers.reason,
        message=numbers.message,
        untuned=numbers.untuned,
        tuned=numbers.tuned,
        before_sec=numbers.before_sec,
        after_sec=numbers.after_sec,
        share_before=numbers.share_before,
        share_after=numbers.share_after,
        speedup=numbers.speedup,
        disturbed=numbers.is_disturbed,
        trials=task.trials,
        outcomes=dict(outcomes.get(task.position, {})),
        confirmations=task.confirmations,
        best_cost_sec=task.best_cost_sec,
        spent_sec=task.spent_sec,
        roofline=ReportRoofline.model_validate(stands.to_json()) if stands else None,
    )


def _peak(peak: Peak | None) -> ReportPeak | None:
    if peak is None:
        return None
    peak_json = peak.to_json()
    memory = peak_json["bandwidth"][-1]["bytes_per_sec"] if peak_json["bandwidth"] else None
    names = ("threads", "measured_at", "flops_per_sec", "missing")
    return ReportPeak.model_validate(
        {**{name: peak_json[name] for name in names}, "memory_bytes_per_sec": memory}
    )


def _total(outcomes: Outcomes) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in outcomes.values():
        total.update(counts)
    return dict(sorted(total.items(), key=lambda item: (item[0] != "ok", -item[1], item[0])))
