"""Times that cannot be: they are not stored, and `device_blame` has their device quarantined."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import structlog

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.records.rooflines import device_model_peak
from tunefarm_app.storage.job_options import precision_of
from tunefarm_db.values import DeviceLease, Job
from tunefarm_text.quantities import flops_per_sec
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.roofline import DISPROVED, kernel_dtype
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.computation import Computation
from tunefarm_tuning.workload.task import TuningTask

log = structlog.stdlib.get_logger(__name__)

_IMPOSSIBLE = 4.0
"""A peak that was measured on a busy device is too low, though not by this factor: the best of several runs counts."""
_IMPOSSIBLE_IN_NARROW = 64.0
"""Products of 8 and 16 bits reach many times the peak of float32: 32 times with AMX."""
_RECENT_SEC = 600.0
"""A peak is measured again no sooner than this: a kernel that always exceeds it must not keep its device from the search."""
_NARROW = frozenset({"int8", "uint8", "int16", "uint16", "float16", "bfloat16"})


def check_times(
    context: StepContext,
    job: Job,
    device: DeviceLease,
    task: TuningTask,
    space: ConfigSpace | None,
    outcomes: Sequence[TrialOutcome],
) -> None:
    """Refuse a round with a time far above the device's roofline, by what its kernel must compute (`_least_flops`).

    A peak that a kernel exceeds by little was measured on a busy device: it is measured again at once, if it is not from just now.

    Raises:
        DeviceLostError: ``impossible-times``: nothing of the round may be stored.
    """
    costs = [outcome.cost_sec for outcome in outcomes if outcome.cost_sec is not None]
    dtype = kernel_dtype([spec.to_json() for spec in task.workload.args])
    if not costs or dtype is None:
        return
    with context.services.uow.read() as repos:
        peak = device_model_peak(repos, device.device)
    most = None if peak is None else peak.flops_on(peak.threads, dtype)
    if most is None:
        return
    is_narrow = precision_of(job).multiplies or any(spec.dtype in _NARROW for spec in task.workload.args)
    factor = _IMPOSSIBLE_IN_NARROW if is_narrow else _IMPOSSIBLE
    least = _least_flops(task.workload.flops, None if space is None else space.computation)
    if least / min(costs) <= factor * most:
        if task.workload.flops / min(costs) > DISPROVED * most and not is_narrow:
            _measure_peak_again(context, device)
        return
    why = (
        f"it measured {task.workload.name} at {flops_per_sec(least, min(costs))}, which is impossible: its peak is "
        f"{flops_per_sec(most, 1.0)}. If the peak is right, the device's times are wrong: `tunefarm records purge` removes its records"
    )
    with context.services.uow.write() as repos:
        repos.peaks.doubt(device.device.id)  # it is measured again before the device works again
    raise DeviceLostError(
        f"device {device.device.name}: {why}", code="impossible-times", device_id=device.device.id
    )


def _least_flops(flops: float, computation: Computation | None) -> float:
    """Return how many operations every kernel of a task does, as far as that is certain: those of the sums of products of two tensors.

    Other operations are counted, but a compiler need not do them: it folds a chain of signs, and of a tensor of which few elements are used
    it computes these alone (90 `Relu` and a `Slice`: 94 million operations in 21 ns). A model made for it would have every device held.
    """
    if computation is None or not any(axis.reduces for axis in computation.axes):
        return 0.0
    factors = sum(not access.writes for access in computation.accesses)
    return min(flops, 2.0 * prod(computation.extents)) if factors > 1 else 0.0


def _measure_peak_again(context: StepContext, device: DeviceLease) -> None:
    with context.note() as repos:
        peak = repos.peaks.get(device.device.id)
        if peak is None or repos.now() - peak.measured_at < _RECENT_SEC:
            return
        repos.peaks.doubt(device.device.id)
    log.info("peak is measured again: a kernel exceeds it", device_id=device.device.id)
