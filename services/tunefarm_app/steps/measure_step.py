"""The measure step: times the artifact of an ended job again, on a leased device."""

from __future__ import annotations

import structlog

from tunefarm_app.jobs.artifacts import artifact_of, artifact_path
from tunefarm_app.leases.device_turns import wake_next
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.models.quantised import job_model
from tunefarm_app.models.samples import sample_ids
from tunefarm_app.report.measurements import measured_beside, with_measurement
from tunefarm_app.report.numbers import set_report
from tunefarm_app.storage.job_options import precision_of
from tunefarm_db.unit_of_work import Repositories
from tunefarm_tuning.compiler.report import LatencyEvidence
from tunefarm_tuning.core.errors import NotFoundError

log = structlog.stdlib.get_logger(__name__)


def run_measure(context: StepContext) -> None:
    """Time the artifact, and add the measurement to its report. Waits for a device of the job's pool, before all jobs.

    Raises:
        InvalidInputError: If the artifact or its model can no longer be run.
        NotFoundError: If one of them was deleted.
        DeviceLostError: If the device went away; the step is tried again.
    """
    services = context.services
    with services.uow.read() as repos:
        job = repos.jobs.get(context.step.subject_id)
        artifact = artifact_of(repos, job)
        row = repos.models.get(job.model_id)
        samples = [services.blobs.path(sha256) for sha256 in _samples(repos, row.id, sample_ids(job.options))]
    path = artifact_path(services, artifact)
    device = context.lease.take_device(job.device_key)
    if device is None:
        with services.uow.write() as repos:
            repos.steps.lock_claimed(context.step.id, context.step.fence)
            repos.steps.release(
                context.step.id, context.step.fence, delay_sec=services.settings.device_retry_sec
            )
            woken = wake_next(repos, job.device_key)
        if woken is not None:  # it may be this step: a device was freed meanwhile
            context.following.append(woken)
        log.info("waiting for a device")
        return
    timed = context.engine.time_artifact(
        path,
        job_model(services, job, row),
        precision=precision_of(job).of_network,
        baselines=measured_beside(job, artifact),
        samples=samples,
        device=device.device,
        cancellation=context.cancellation,
    )
    latency = LatencyEvidence(
        latency=timed.latency, no_baseline=timed.no_baseline, baselines=timed.baselines
    ).to_json()
    with context.commit(device) as repos:
        present = artifact_of(repos, repos.jobs.get(job.id, lock=True))
        report = with_measurement(present, latency, device.device, measured_at=timed.measured_at)
        set_report(repos, job.id, report)
        taken = report["measurements"][-1]
        noted = {
            "device": device.device.name,
            "quiet": taken["quiet"],
            "latency_sec": taken["latency"]["tuned"]["median_sec"],
        }
        repos.events.add(job.id, "measured", noted)
    log.info("artifact measured", **noted)


def _samples(repos: Repositories, model_id: str, ids: list[str]) -> list[str]:
    """Return the files of the job's samples that are still there."""
    files = []
    for samples_id in ids:
        try:
            files.append(repos.samples.get(model_id, samples_id).sha256)
        except NotFoundError:
            log.info("samples were deleted: timed on other inputs", samples_id=samples_id)
    return files
