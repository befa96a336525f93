"""How fast the whole network was during a job's search, and why that is not known yet: for pages, API, command and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunefarm_app.report.sections import ReportNetwork
from tunefarm_app.settings import Settings
from tunefarm_app.storage.job_options import searches
from tunefarm_db.values import Job, NetworkTiming, Step, StepState
from tunefarm_text.quantities import duration, tuned_kernels

_CPU = "llvm"
_ESTIMATE = "Until then the latency is an estimate: the sum of the kernels' best times."
_CURVE = "The curve is an estimate: the sum of the kernels' best times."
_ENDS = "The compile measured the first and the last point: the untuned network, and the artifact."
_THIN = "The thin curve is an estimate: the sum of the kernels' best times."
_REASONS: Mapping[str, str] = {
    "runs-parts": "ONNX Runtime runs parts of the network, and a search times only networks that are compiled completely",
    "draft-elsewhere": "no worker's machine can run code for this target, and a worker checks each network before a device times it",
}
"""Why a network is not timed, by the code of the error that says so."""


def networks_of(rows: Sequence[NetworkTiming]) -> list[ReportNetwork]:
    """Return the networks that were timed in a search, oldest first."""
    return [ReportNetwork.model_validate(row) for row in rows if row.latency_sec is not None]


def fastest_network(networks: Sequence[ReportNetwork]) -> ReportNetwork | None:
    """Return the network whose latency a job shows until it has an artifact; None if none was timed."""
    return min(networks, key=lambda network: network.latency_sec, default=None)


def network_words(network: ReportNetwork) -> str:
    """Return when and how far tuned a network was timed: ``"measured after 1 min 02 s of search, 3 of 20 kernels tuned"``."""
    disturbed = ", disturbed by other work" if network.quiet is False else ""
    tuned = tuned_kernels(network.covered, network.tasks)
    return f"measured after {duration(network.tuned_sec)} of search, {tuned}{disturbed}"


def curve_words(
    job: Job,
    rows: Sequence[NetworkTiming],
    settings: Settings,
    draft: Step | None = None,
    *,
    at_compile: bool = False,
) -> str:
    """Return what a job's curve shows: its network as measured during the search, or why there are no such points.

    Args:
        job: The job.
        rows: The networks that it compiled on the way.
        settings: The farm's.
        draft: The step that compiles the first of them; None if there is none.
        at_compile: Whether the compile timed the network untuned and as the artifact: the curve's first and last points.
    """
    if not searches(job):
        return "The job did not search, so there is no curve."
    ends = f" {_ENDS}" if at_compile else ""
    if any(row.latency_sec is not None for row in rows):
        return (
            f"Points are the whole network, measured during the search with the kernels so far.{ends} {_THIN}"
        )
    reason = _why_never(job, rows, settings, draft)
    if job.state.is_finished:
        reason = reason or _ended_before(job, rows, settings)
        if at_compile:
            return f"{_ENDS} Between them the network was not timed: {reason}. {_THIN}"
        return f"The network itself was not timed during the search: {reason}. {_CURVE}"
    if reason:
        return f"The network itself is timed when the job compiles: {reason}. {_ESTIMATE}"
    return (
        f"The network itself is timed after {duration(settings.network_timing_after_sec)} of search, as soon as it is compiled and "
        f"the timing takes no more than {settings.network_timing_share:.0%} of the search. {_ESTIMATE}"
    )


def _why_never(job: Job, rows: Sequence[NetworkTiming], settings: Settings, draft: Step | None) -> str:
    """Return why the job's search times no network, or has not so far; empty if it may."""
    if job.target.get("kind") != _CPU:
        return "on a GPU the compile needs the device, which the search holds"
    if not settings.max_drafts_bytes or not settings.network_timing_share:
        return "this farm's settings switch these timings off"
    error = rows[-1].error if rows else None
    if error is not None:
        return _REASONS.get(str(error.get("code")), str(error.get("message", "")))
    if draft is not None and draft.error is not None and (draft.state is StepState.FAILED or not rows):
        return _REASONS.get(str(draft.error.get("code")), str(draft.error.get("message", "")))
    after_sec, wall_sec = settings.network_timing_after_sec, job.budget.get("wall_sec")
    if wall_sec is not None and wall_sec <= after_sec:
        return f"a search of {duration(wall_sec)} is too short: timing begins after {duration(after_sec)}"
    return ""


def _ended_before(job: Job, rows: Sequence[NetworkTiming], settings: Settings) -> str:
    """Return why a search that ended had timed no network, though it might have."""
    after_sec = settings.network_timing_after_sec
    if job.tuned_sec < after_sec:
        return (
            f"the search ended after {duration(job.tuned_sec)}, and timing begins after {duration(after_sec)}"
        )
    if not rows:
        return "the search ended before the network was compiled"
    return f"the search ended before a timing was due: timings may take {settings.network_timing_share:.0%} of it"
