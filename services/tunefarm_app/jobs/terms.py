"""The terms of a job, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from tunefarm_app.access.quotas import check_job
from tunefarm_app.devices.calibration import NO_LINKER
from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import UP_STATES, Device, DeviceState
from tunefarm_text.job_terms import DEFAULT_TUNER, MAX_PRIORITY, PRIORITIES, TUNERS
from tunefarm_text.quantities import some_of
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.baselines.runtimes import parse_baselines
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.target.gpu import plain_arch
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.precision import parse_precision
from tunefarm_tuning.workload.quantisation import check_max_error

MAX_SEED = (1 << 63) - 1
MAX_ROUND_SIZE = 256
MAX_TRIALS = (1 << 31) - 1
MAX_WALL_SEC = 366 * 86400.0
_LARGEST: Mapping[str, tuple[str, float, str]] = {
    "trials": ("the number of trials", MAX_TRIALS, f"{MAX_TRIALS:,}"),
    "wall_sec": ("the time of the search", MAX_WALL_SEC, f"{MAX_WALL_SEC / 86400:.0f} days"),
    "job_sec": ("the time of the whole job", MAX_WALL_SEC, f"{MAX_WALL_SEC / 86400:.0f} days"),
    "patience_trials": ("the patience", MAX_TRIALS, f"{MAX_TRIALS:,} trials"),
    "min_gain_per_min": ("the minimum gain", 1.0, "1, which is 100 percent a minute"),
}
"""Of each limit: its name for people, the largest value, and that value with its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """The terms of a job, without the model.

    Attributes:
        budget: Limits of the search; None for a job without one.
        search: Whether to search; without, the job compiles from what is on record.
        target: A target's name, JSON or dict; None or ``"host"`` is the target that the pool's devices report.
        device_key: The pool to measure on; may be omitted if there is only one.
        round_size: Candidates of a tuning step; by default the server's setting.
        priority: Jobs with a higher one get devices first; a number, or a name in `PRIORITIES`.
        precision: Format of large weights, one of `Precision`; by default as in the model.
        max_error: Largest mean error of the outputs that the precision may cost; see `compile`.
        other_shapes: Whether the artifact gets code for shapes that it was not tuned for.
        baselines: Other runtimes to time it beside; see `compile`.
    """

    budget: Budget | None = None
    search: bool = True
    target: str | Mapping[str, Any] | None = None
    device_key: str | None = None
    tuner: str = DEFAULT_TUNER
    seed: int = 0
    round_size: int | None = None
    priority: int | str = 0
    precision: str | None = None
    max_error: float | None = None
    other_shapes: bool = True
    baselines: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledTerms:
    """Checked terms: the pool that measures, and the target."""

    device_key: str
    target: Target

    @property
    def target_key(self) -> str:
        """The key of the target in the job's records: it does not depend on libraries."""
        return self.target.without_libraries().key


def check_terms(services: Services, terms: JobTerms) -> SettledTerms:
    """Check a request without its model, which may be large and not uploaded yet. Writes nothing.

    Raises:
        ConflictError, InvalidInputError, QuotaError: As `submit_job`.
    """
    with services.uow.read() as repos:
        settled = settle_terms(repos, terms)
        budget = terms.budget.to_json() if terms.budget is not None else {}
        check_job(
            repos,
            priority=parse_priority(terms.priority),
            budget=budget if terms.search else None,
            lock=False,
        )
        return settled


def settle_terms(repos: Repositories, terms: JobTerms) -> SettledTerms:
    """Check terms against the registered devices, and fill in the pool and the target.

    Raises:
        ConflictError, InvalidInputError: As `submit_job`.
    """
    _check_options(terms)
    device = _device_of(repos, terms.device_key)
    target = _target_of(terms.target, device)
    parse_precision(terms.precision, target)
    return SettledTerms(device_key=device.device_key, target=target)


def check_budget(budget: Budget) -> None:
    """Refuse limits that are infinite or absurdly large.

    Raises:
        InvalidInputError: ``invalid-budget``.
    """
    for name, (words, largest, shown) in _LARGEST.items():
        value = getattr(budget, name, None)
        if value is not None and not value <= largest:
            raise InvalidInputError(f"{words} must be at most {shown}", code="invalid-budget", limit=name)


def _check_options(request: JobTerms) -> None:
    if request.budget is not None:
        check_budget(request.budget)
    if request.search == (request.budget is None):
        raise InvalidInputError(
            "the budget is empty: set at least one limit"
            if request.search
            else "a job that does not search takes no budget: omit it",
            code="invalid-budget",
        )
    if request.tuner not in TUNERS:
        raise InvalidInputError(
            f"there is no tuner {clean(request.tuner, 40)!r}; {_nearest(request.tuner, TUNERS)}",
            code="unknown-tuner",
            known=list(TUNERS),
        )
    parse_priority(request.priority)
    parse_precision(request.precision)
    if request.max_error is not None:
        check_max_error(request.max_error)
    parse_baselines(request.baselines)
    if not 0 <= request.seed <= MAX_SEED:
        raise InvalidInputError(f"the seed must be between 0 and {MAX_SEED}", code="invalid-seed")
    if request.round_size is not None and not 1 <= request.round_size <= MAX_ROUND_SIZE:
        raise InvalidInputError(
            f"round_size must be between 1 and {MAX_ROUND_SIZE}", code="invalid-round-size"
        )


def _device_of(repos: Repositories, device_key: str | None) -> Device:
    """Return a device that represents its pool, an online one if possible."""
    known = repos.devices.keys()
    if not known:
        raise ConflictError(
            "no device has been registered yet: start one with `tunefarm device join`", code="no-devices"
        )
    if device_key is None:
        if len(known) > 1:
            raise InvalidInputError(
                f"the farm has several pools: name a pool as the device key: {some_of(known, 10)}",
                code="device-key-required",
                known=list(known),
            )
        device_key = known[0]
    if device_key not in known:
        raise InvalidInputError(
            f"there is no pool {clean(device_key, 60)!r}; {_nearest(device_key, known)}",
            code="unknown-device-key",
            known=list(known),
        )
    pool = repos.devices.in_pool(device_key)
    device = max(pool, key=lambda d: (d.state in UP_STATES, d.last_seen_at))
    if device.state is DeviceState.CHECKING and device.reason.startswith(NO_LINKER):
        raise ConflictError(
            f"{device.name} waits for a linker: {clean(device.reason, 300)}",
            code="no-linker",
            device_key=device_key,
        )
    return device


def _target_of(requested: str | Mapping[str, Any] | None, device: Device) -> Target:
    device_target = Target.from_json(device.target)
    if requested is None or (isinstance(requested, str) and requested.strip() == "host"):
        return device_target
    target = parse_target(requested)
    if target.kind != device_target.kind:
        raise _incompatible(
            f"the target {clean(target.key)} is of kind {target.kind}, but the devices of {device.device_key} "
            f"are of kind {device_target.kind} ({device_target.key})",
            target,
            device_target,
        )
    if target.kind == "cuda" and _arch(target) != _arch(device_target):
        # Libraries hold machine code only, which no driver can translate.
        raise _incompatible(
            f"the target is for GPUs of {clean(_arch(target), 20)}, but those of {device.device_key} are "
            f"{clean(_arch(device_target), 20)}: omit the target, or use cuda/{clean(_arch(device_target), 20)}",
            target,
            device_target,
        )
    return target


def _incompatible(message: str, target: Target, device_target: Target) -> InvalidInputError:
    return InvalidInputError(
        message, code="incompatible-target", target=clean(target.key), device_target=device_target.to_json()
    )


def _arch(target: Target) -> str:
    return plain_arch(str(target.get("arch")))


def _nearest(text: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(text, known, n=3, cutoff=0.5)
    return (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"there {'is' if len(known) == 1 else 'are'} {some_of(known, 10)}"
    )


def parse_priority(requested: int | str) -> int:
    """Return the number of a priority that is given as a name or a number.

    Raises:
        InvalidInputError: ``invalid-priority``.
    """
    priority = PRIORITIES.get(requested) if isinstance(requested, str) else requested
    if priority is None or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidInputError(
            f"the priority is {clean(str(requested), 40)!r}, but must be {', '.join(PRIORITIES)}, or a whole number from "
            f"{-MAX_PRIORITY} to {MAX_PRIORITY}",
            code="invalid-priority",
        )
    return priority
