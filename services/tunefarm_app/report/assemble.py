"""Assemble a job's report from the database. It does not depend on the time of the request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tunefarm_app.records.rooflines import kernel_roofline, task_computations
from tunefarm_app.report.document import (
    FORMAT,
    FORMAT_VERSION,
    JobReport,
    ReportedArtifact,
    ReportedJob,
    ReportedModel,
    ReportedTarget,
    ReportKernel,
)
from tunefarm_app.report.evidence import Evidence, breakdown
from tunefarm_app.report.parts import ReportPeak, ReportRoofline
from tunefarm_app.report.reproduce import reproduce
from tunefarm_app.report.sentences import caveats, not_measured, summary
from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Artifact, Job, JobTask, Model, Workload
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.workload.computation import Computation

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
                f"the job is {job.state}: its report comes when it has ended",
                code="not-finished",
                state=job.state.value,
            )
        model = repos.models.get(job.model_id, deleted=True)
        artifact = repos.artifacts.for_job(job_id)
        tasks = repos.jobs.tasks(job_id)
        outcomes = repos.trials.outcomes(job_id)
        workloads = _workloads(repos, tasks)
        computations = task_computations(repos, job.target_key, tasks)
    return _assemble(job, model, artifact, tasks, outcomes, workloads, computations)


def _workloads(repos: Repositories, tasks: Sequence[JobTask]) -> dict[str, Workload]:
    if not tasks:
        return {}
    return repos.workloads.get_many([task.workload_key for task in tasks], tasks[0].toolchain)


def _assemble(
    job: Job,
    model: Model,
    artifact: Artifact | None,
    tasks: Sequence[JobTask],
    outcomes: Outcomes,
    workloads: Mapping[str, Workload],
    computations: Mapping[str, Computation],
) -> JobReport:
    evidence = Evidence(artifact.manifest, artifact.report) if artifact else Evidence({}, {})
    coverage, latency = evidence.coverage(), evidence.latency()
    kernels = _kernels(tasks, outcomes, workloads, computations, evidence)
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
        peak=_peak(evidence.peak()),
        place=evidence.place(),
        artifact=_artifact(artifact) if artifact else None,
        latency=latency,
        shapes=evidence.shapes(),
        other_shapes=evidence.other_shapes(),
        hybrid=evidence.hybrid(),
        coverage=coverage,
        kernels=kernels,
        not_tunable=evidence.not_tunable(),
        alternatives=evidence.alternatives(),
        networks_sec=evidence.networks_sec(),
        # Kernels of several sets of shapes are no parts of one latency.
        breakdown=None if evidence.shapes() else breakdown(latency, kernels),
        outcomes=_total(outcomes),
        checks=evidence.checks(),
        precision=evidence.precision(),
        records=evidence.records(),
        method=evidence.texts("method"),
        not_measured=[],
        warnings=evidence.warnings(),
        versions=evidence.texts("versions"),
        phases_sec=evidence.seconds("phases_sec"),
        reproduce=reproduce(job, model, artifact, evidence),
    )
    unreadable = sorted(set(evidence.unreadable))
    return report.model_copy(
        update={
            "summary": summary(report),
            "not_measured": not_measured(report),
            "warnings": [
                *report.warnings,
                *caveats(report.latency),
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


def _kernels(
    tasks: Sequence[JobTask],
    outcomes: Outcomes,
    workloads: Mapping[str, Workload],
    computations: Mapping[str, Computation],
    evidence: Evidence,
) -> list[ReportKernel]:
    coverage, hits, timings = evidence.coverage(), evidence.hits(), evidence.kernels()
    peak, use = evidence.peak(), evidence.place()
    replaced = evidence.chosen()
    misses = {miss.workload_key: miss for miss in coverage.misses} if coverage else {}

    def kernel(task: JobTask) -> ReportKernel:
        miss, workload = misses.get(task.workload_key), workloads.get(task.workload_key)
        covered = None if hits is None else task.workload_key in hits
        untuned, tuned = timings.get(task.workload_key, (None, None))
        now = tuned if covered else untuned
        after_sec = now.median_sec if now else None
        chosen, part = replaced.get(task.workload_key), task.alternative is not None
        if chosen is not None:
            covered, now, after_sec = True, None, chosen.sum_sec
        elif part:
            covered = covered or None
        stands = kernel_roofline(
            workload.flops if workload else 0.0,
            now.median_sec if now else task.best_cost_sec,
            workload.args if workload else [],
            computations.get(task.workload_key),
            peak,
            threads=use.threads if now and use else None,
        )
        return ReportKernel(
            position=task.position,
            name=task.name,
            workload_key=task.workload_key,
            weight=task.weight,
            flops=workload.flops if workload else None,
            args=workload.args if workload else [],
            covered=covered,
            algorithm=chosen.algorithm if chosen is not None else None,
            alternative=str(task.alternative["algorithm"]) if task.alternative is not None else None,
            reason=miss.reason if miss else None,
            message=miss.message if miss else "",
            untuned=untuned,
            tuned=tuned,
            before_sec=task.weight * untuned.median_sec if untuned and not part else None,
            after_sec=task.weight * after_sec if after_sec is not None and not part else None,
            trials=task.trials,
            outcomes=dict(outcomes.get(task.position, {})),
            confirmations=task.confirmations,
            best_cost_sec=task.best_cost_sec,
            spent_sec=task.spent_sec,
            # An algorithm with fewer operations than the original kernel can seem to exceed the device's peak.
            roofline=ReportRoofline.model_validate(stands.to_json()) if stands and chosen is None else None,
        )

    return [kernel(task) for task in tasks]


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
