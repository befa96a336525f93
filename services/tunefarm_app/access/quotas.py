"""What one API key may use: bytes, open jobs, minutes of search, the highest priority.

Usage is counted by owner, which is the key that was created first: a rotated key goes on where its predecessor was. A check
locks the key's row until the end of its transaction, so that requests of one key cannot pass it side by side; keys without
a limit are not locked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.job_options import own_wall_sec, searches
from tunefarm_db.acting import acting
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError

WINDOW_SEC = 30 * 86400.0
"""Minutes of search count for this long after their job has ended."""

RENEW_SEC = 3600.0
"""How often the reservation of an upload is renewed while its bytes come."""

_RESERVED_SEC = 6 * 3600.0
_RETRY_SEC = 60


class QuotaError(TunefarmError):
    """The key has used up what it may use. `limit` and `used` say how much that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """The limits of a key; None for none.

    Attributes:
        bytes: Of models, samples, imported records and running uploads together.
        open_jobs: Jobs that have not ended, and artifacts that are measured again.
        device_minutes: Minutes of search of jobs that ended in the last 30 days. Open jobs count with their whole time budget.
        priority: The highest priority of its jobs.
    """

    bytes: int | None = None
    open_jobs: int | None = None
    device_minutes: float | None = None
    priority: int | None = None

    @classmethod
    def from_json(cls, limits: Json) -> KeyLimits:
        """Return stored limits; a limit that this version does not know is left out."""
        return cls(**{name: value for name, value in limits.items() if name in cls.__dataclass_fields__})

    def to_json(self) -> Json:
        """Return the limits that there are."""
        return {name: value for name, value in asdict(self).items() if value is not None}


NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    """What the keys of one owner use of what can be limited; fields as in `KeyLimits`."""

    bytes: int
    open_jobs: int
    device_minutes: float


def usage_of(repos: Repositories, owner: str) -> KeyUsage:
    """Return what an owner uses now, counted as the checks count it."""
    jobs = repos.usage.open_jobs(owner)
    return KeyUsage(
        bytes=repos.usage.size_bytes(owner),
        open_jobs=len(jobs) + repos.usage.open_measurements(owner),
        device_minutes=(repos.usage.searched_sec(owner, WINDOW_SEC) + _asked_sec(jobs)) / 60.0,
    )


def _asked_sec(open_jobs: Sequence[Job]) -> float:
    """Return the search that open jobs have had or may have; a job without a time limit may have the whole window."""
    return sum(
        max(job.tuned_sec, min(_time_limit(job.budget), WINDOW_SEC)) for job in open_jobs if searches(job)
    )


def _held(repos: Repositories, *, lock: bool = True) -> tuple[str, KeyLimits] | None:
    """Return who acts, and the limits, whose row is locked if wanted; None for a key without limits, and the farm itself."""
    owner = acting().owner
    key = None if owner is None else repos.api_keys.find(owner)
    if owner is None or key is None or not key.limits:
        return None
    key = repos.api_keys.find(owner, lock=lock)
    return None if key is None else (owner, KeyLimits.from_json(key.limits))


def check_bytes(repos: Repositories, size_bytes: int) -> None:
    """Refuse an upload of this size if the key may not store so much more.

    Raises:
        QuotaError: ``quota-bytes``.
    """
    room = _room(repos)
    if room is not None and size_bytes > room.left_bytes:
        raise room.too_many_bytes()


@dataclass(frozen=True, slots=True)
class _Room:
    """What a key may store, and what it stores and has reserved."""

    owner: str
    limit: int
    used: int

    @property
    def left_bytes(self) -> int:
        return max(self.limit - self.used, 0)

    def too_many_bytes(self) -> QuotaError:
        limit, used = quantities.size(self.limit), quantities.size(self.used)
        return QuotaError(
            f"this API key may store {limit}, and {used} are used or reserved: delete models, samples or unfinished uploads, "
            "or ask an administrator for more, or to take back imported records",
            code="quota-bytes",
            limit=self.limit,
            used=self.used,
        )


def _room(repos: Repositories) -> _Room | None:
    """Return what the key that acts may store; None without a limit."""
    held = _held(repos)
    if held is None or held[1].bytes is None:
        return None
    return _Room(held[0], held[1].bytes, repos.usage.size_bytes(held[0]))


class ReservedBytes:
    """Bytes that an upload in one request may have.

    Args:
        services: The process's services.
        allowed: How many.
        reservation: The reservation's id; None if the key has no limit.
    """

    def __init__(self, services: Services, allowed: int, reservation: str | None) -> None:
        self.allowed = allowed
        self._services, self._reservation = services, reservation
        self._renewed_at = time.monotonic()

    def renew(self) -> None:
        """Renew the reservation if it is due; call it while bytes come."""
        if self._reservation is None or time.monotonic() - self._renewed_at < RENEW_SEC:
            return
        with self._services.uow.write() as repos:
            repos.usage.renew_bytes(self._reservation, keep_sec=_RESERVED_SEC)
        self._renewed_at = time.monotonic()


@contextmanager
def reserved_bytes(services: Services, announced: int | None, limit_bytes: int) -> Iterator[ReservedBytes]:
    """Reserve bytes for an upload that comes in one request, during the block; yield how many it may have.

    Args:
        services: The process's services.
        announced: Its size; None if the client does not say. Then all that is left is reserved.
        limit_bytes: The largest file that the farm takes.

    Raises:
        QuotaError: ``quota-bytes``.
    """
    owner = acting().owner
    with services.uow.read() as repos:
        key = None if owner is None else repos.api_keys.find(owner)
    if key is None or KeyLimits.from_json(key.limits).bytes is None:
        yield ReservedBytes(services, limit_bytes, None)
        return
    with services.uow.write() as repos:
        room = _room(repos)
        if room is None:  # an administrator has lifted the limit just now
            room = _Room(key.owner, limit_bytes, 0)
        wanted = min(limit_bytes, room.left_bytes) if announced is None else announced
        if wanted > room.left_bytes or room.left_bytes == 0:
            raise room.too_many_bytes()
        reservation = repos.usage.reserve_bytes(room.owner, wanted, keep_sec=_RESERVED_SEC)
    try:
        yield ReservedBytes(services, wanted, reservation)
    except InvalidInputError as error:
        if error.code == "too-large" and announced is None and wanted < limit_bytes:  # for the farm it is not
            raise room.too_many_bytes() from error
        raise
    finally:
        with services.uow.write() as repos:
            repos.usage.release_bytes(reservation)


def check_job(
    repos: Repositories,
    *,
    priority: int,
    budget: Mapping[str, float | None] | None,
    spent_sec: float = 0.0,
    lock: bool = True,
) -> None:
    """Refuse another job of the key, if it may not have it.

    Args:
        repos: The transaction that adds the job, or asks whether it could.
        priority: Its priority.
        budget: Its budget; None for a job that does not search.
        spent_sec: What of that it has spent, if it is an earlier one.
        lock: Whether other jobs of the key wait for the end of the transaction.

    Raises:
        QuotaError: ``quota-open-jobs``, ``quota-device-minutes``, ``quota-priority``.
    """
    held = _held(repos, lock=lock)
    if held is None:
        return
    owner, limits = held
    _check_priority(limits, priority)
    jobs = repos.usage.open_jobs(owner)
    _check_open(repos, owner, limits, jobs)
    if budget is not None:
        _check_minutes(repos, owner, limits, jobs, _time_limit(budget) - spent_sec)


def check_change(
    repos: Repositories, job: Job, *, priority: int, budget: Mapping[str, float | None] | None
) -> None:
    """Refuse a change of a job that the key may not have.

    Args:
        repos: The transaction that changes the job.
        job: The job before the change.
        priority: Its priority from now on.
        budget: The budget that is asked for; None for one that stays.

    Raises:
        QuotaError: ``quota-device-minutes``, ``quota-priority``, ``quota-own-jobs``.
    """
    held = _held(repos)
    if held is None:
        return
    owner, limits = held
    if priority > job.priority:
        _check_own(limits, job, owner)
        _check_priority(limits, priority)
    if budget is not None and job.owner != owner:
        before = {**job.budget, "wall_sec": own_wall_sec(job)}
        if any(_is_more(limit, before.get(name)) for name, limit in budget.items()):
            _check_own(limits, job, owner)
    elif budget is not None:
        others = [other for other in repos.usage.open_jobs(owner) if other.id != job.id]
        _check_minutes(repos, owner, limits, others, _time_limit(budget))


def check_measurement(repos: Repositories) -> None:
    """Refuse to measure another artifact again, if the key may not: it holds a device as an open job does.

    Raises:
        QuotaError: ``quota-open-jobs``.
    """
    held = _held(repos)
    if held is not None:
        owner, limits = held
        _check_open(repos, owner, limits, repos.usage.open_jobs(owner))


def check_own(repos: Repositories, job: Job) -> None:
    """Refuse device time for a job of somebody else, if the key has a limit that this would pass by.

    Raises:
        QuotaError: ``quota-own-jobs``.
    """
    held = _held(repos)
    if held is not None:
        _check_own(held[1], job, held[0])


def _check_own(limits: KeyLimits, job: Job, owner: str) -> None:
    limits_jobs = any(
        limit is not None for limit in (limits.open_jobs, limits.device_minutes, limits.priority)
    )
    if limits_jobs and job.owner != owner:
        raise QuotaError(
            "this API key has limits for its jobs, and this job is not its own: it may not raise the job's budget or priority, "
            "retry it or measure it again. Submit a job on the same terms, or ask an administrator",
            code="quota-own-jobs",
        )


def _check_open(repos: Repositories, owner: str, limits: KeyLimits, open_jobs: Sequence[Job]) -> None:
    if limits.open_jobs is None:
        return
    used = len(open_jobs) + repos.usage.open_measurements(owner)
    if used >= limits.open_jobs:
        raise QuotaError(
            f"this API key may have {quantities.plural(limits.open_jobs, 'open job')}, and has {used}, measurements of artifacts "
            "included: wait until one ends, or cancel one",
            code="quota-open-jobs",
            limit=limits.open_jobs,
            used=used,
            retry_after_sec=_RETRY_SEC,
        )


def _is_more(limit: float | None, before: float | None) -> bool:
    """Return whether a limit of a budget allows more than it did; None is no limit."""
    return before is not None and (limit is None or limit > before)


def _check_priority(limits: KeyLimits, priority: int) -> None:
    if limits.priority is not None and priority > limits.priority:
        raise QuotaError(
            f"jobs of this API key may have a priority of at most {limits.priority}, not {priority}",
            code="quota-priority",
            limit=limits.priority,
        )


def _check_minutes(
    repos: Repositories,
    owner: str,
    limits: KeyLimits,
    open_jobs: Sequence[Job],
    asked_sec: float,
) -> None:
    if limits.device_minutes is None:
        return
    left_sec = limits.device_minutes * 60.0 - repos.usage.searched_sec(owner, WINDOW_SEC)
    left_sec -= _asked_sec(open_jobs)
    if asked_sec > left_sec + 1e-6:
        left = max(left_sec, 0.0) / 60.0
        raise QuotaError(
            f"this API key may search for {limits.device_minutes:g} minutes in 30 days, and {round(left, 1):g} are left beside its open "
            f"jobs: give the job a time budget of at most that, cancel others, or ask an administrator for more",
            code="quota-device-minutes",
            limit=limits.device_minutes,
            left=round(left, 3),
        )


def _time_limit(budget: Mapping[str, float | None]) -> float:
    """Return the seconds of search that a budget allows; infinite if it has no limit of time."""
    return min(
        (sec for name in ("wall_sec", "job_sec") if (sec := budget.get(name)) is not None), default=math.inf
    )
