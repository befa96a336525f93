"""Network timing: before a round, the network with the kernels so far is timed on the leased device."""

from __future__ import annotations

import time

import structlog

from tunefarm_app.engines.interface import NetworkFiles
from tunefarm_app.jobs.network_timings import (
    MOST_TRIES,
    SAMPLING_SEC,
    offer_network,
    show_network,
    to_time,
)
from tunefarm_app.leases.step_context import StepContext
from tunefarm_db.values import DeviceLease, Job, NetworkTiming
from tunefarm_tuning.core.errors import (
    CancelledError,
    DeviceLostError,
    LeaseLostError,
    TransientError,
    TunefarmError,
)
from tunefarm_tuning.core.latency import Latency, is_quiet
from tunefarm_tuning.core.ratio import bounds_sec

log = structlog.stdlib.get_logger(__name__)

_CLAIM_SEC = 90.0
"""Within this time nobody else begins to time a network whose timing a lost worker, or another track, has begun."""


def time_network_if_due(context: StepContext, job: Job, device: DeviceLease) -> None:
    """Time the job's newest network on the device of this step, if it waits for that and the search loses little by it.

    A network that fails is not timed again, and the search goes on.

    Raises:
        DeviceLostError: If the device went away.
        TransientError: ``device-lease-lost`` if the device is no longer ours; nothing is written.
    """
    services = context.services
    with services.uow.read() as repos:
        network = to_time(job, repos.network_timings.of(job.id), services.settings)
    if network is None:
        return
    with context.note() as repos:
        if not repos.network_timings.begin(
            job.id, network.number, most_tries=MOST_TRIES, within_sec=_CLAIM_SEC
        ):
            return
    began = time.monotonic()
    try:
        latency = context.engine.time_network(
            NetworkFiles(
                artifact=services.blobs.path(network.sha256),
                inputs=services.blobs.path(network.inputs_sha256),
            ),
            device=device.device,
            sampling_sec=SAMPLING_SEC,
            cancellation=context.cancellation,
        )
    except DeviceLostError as error:
        context.lease.check()
        if network.tries + 1 >= MOST_TRIES:
            _note_failure(context, network, error, time.monotonic() - began)
        raise
    except (TransientError, LeaseLostError, CancelledError):
        raise
    except TunefarmError as error:
        context.lease.check()
        _note_failure(context, network, error, time.monotonic() - began)
        return
    _note_latency(context, device, network, latency, time.monotonic() - began)


def _note_latency(
    context: StepContext, device: DeviceLease, network: NetworkTiming, latency: Latency, spent_sec: float
) -> None:
    settings = context.services.settings
    low_sec, high_sec = bounds_sec(latency) or (None, None)
    quiet = is_quiet([latency])
    with context.note() as repos:
        job = context.job(repos)
        if not repos.devices.renew_lease(device.device.id, device.fence, settings.lease_sec):
            raise TransientError(
                f"the lease of device {device.device.name} was lost", code="device-lease-lost"
            )
        repos.network_timings.note(
            job.id,
            network.number,
            latency_sec=latency.median_sec,
            low_sec=low_sec,
            high_sec=high_sec,
            quiet=quiet,
            device_id=device.device.id,
            device=device.device.name,
            tuned_sec=job.tuned_sec,
            spent_sec=spent_sec,
        )
        networks = repos.network_timings.of(job.id)
        show_network(repos, job, networks)
        noted = {
            "number": network.number,
            "latency_sec": latency.median_sec,
            "low_sec": low_sec,
            "high_sec": high_sec,
            "quiet": quiet,
            "tasks": network.tasks,
            "covered": network.covered,
            "device": device.device.name,
            "tuned_sec": job.tuned_sec,
            "trials": job.trials,
        }
        repos.events.add(job.id, "network-timed", noted)
        if network.number:
            offer_network(repos, networks[-1], networks, limit_bytes=settings.max_drafts_bytes)
    log.info(
        "network timed", number=network.number, latency_sec=latency.median_sec, seconds=round(spent_sec, 3)
    )


def _note_failure(
    context: StepContext, network: NetworkTiming, error: TunefarmError, spent_sec: float
) -> None:
    with context.note() as repos:
        job = context.job(repos)
        repos.network_timings.fail(job.id, network.number, error.to_json(), spent_sec=spent_sec)
        repos.events.add(job.id, "network-untimed", {"number": network.number, "error": error.to_json()})
    log.warning("network not timed", number=network.number, error=error.message)
