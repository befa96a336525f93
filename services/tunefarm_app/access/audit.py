"""The audit log of the farm: notes of what only reads or is refused, sealing, and the check of the chain.

What changes something is noted by its own transaction (`repos.audit.note`). Downloads and refusals have none, and must
neither wait for the database nor fill it: they are counted here, and written by a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_db.acting import Acting
from tunefarm_db.values import AuditAction, AuditEntry, WaitingEntries
from tunefarm_text.audit_chain import ChainBreak, ChainCheck
from tunefarm_tuning.core.errors import TransientError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

REFUSALS_EVERY_SEC = 60.0
"""How often refusals are written at most: an attacker must not fill the log."""

MAX_COUNTED = 100
"""How many refusals in that time keep their address, of valid keys and of strangers each. Of the others those are added up that
are equal without it: who is refused by whom is bounded by the keys there are, and why by the problem codes."""

_MAX_DOWNLOADS = 10_000
_PART = 1000
_CHECK_AGAIN_SEC = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """What equal downloads, or equal refusals, have in common."""

    action: AuditAction
    actor: str | None
    via: str
    address: str
    subject: str | None
    what: str

    def coarser(self) -> _Counted:
        """Return what it is counted as when there are too many."""
        if self.action is AuditAction.REFUSED:
            return replace(self, address="")
        return replace(self, address="", subject=None, what="others")


class _Counts:
    """How often each was counted; above a limit of different ones, coarser ones are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.counts: dict[_Counted, int] = {}

    def add(self, counted: _Counted) -> None:
        if counted not in self.counts and len(self.counts) >= self._limit:
            counted = counted.coarser()
        self.counts[counted] = self.counts.get(counted, 0) + 1

    def take_off(self, written: dict[_Counted, int]) -> None:
        for counted in written.keys() & self.counts.keys():
            self.counts[counted] -= written[counted]
            if self.counts[counted] <= 0:
                del self.counts[counted]


class Auditor:
    """Writes what was counted, and seals the inbox, every `every_sec` in a thread of its own, between `start` and `stop`.

    Concurrency: any number of threads count; any number of processes seal, one of them at a time.
    Failure: while the database is away, what was counted waits; what is above the limits is only added up. Entries that a
    process counted in its last second are lost if it is killed; its log has them.
    """

    def __init__(self, services: Services, *, every_sec: float = 1.0) -> None:
        self._services = services
        self._every_sec = every_sec
        self._lock = threading.Lock()
        self._downloads = _Counts(_MAX_DOWNLOADS)
        # Apart, so that a flood without a key hides nothing of those that have one.
        self._refusals_of_keys = _Counts(MAX_COUNTED)
        self._refusals = _Counts(MAX_COUNTED)
        self._checking = threading.Lock()
        self._refusals_due = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def count_download(self, who: Acting, subject: str | None, what: str) -> None:
        """Count a download: the same one, again within a second, makes one entry."""
        self._count(self._downloads, AuditAction.DOWNLOADED, who, subject, what)

    def count_refusal(self, who: Acting, what: str) -> None:
        """Count a request that was refused; `what` is the problem's code."""
        counts = self._refusals if who.key_id is None else self._refusals_of_keys
        self._count(counts, AuditAction.REFUSED, who, None, what)

    def _count(
        self, counts: _Counts, action: AuditAction, who: Acting, subject: str | None, what: str
    ) -> None:
        counted = _Counted(
            action=action, actor=who.key_id, via=who.via, address=who.address, subject=subject, what=what
        )
        with self._lock:
            counts.add(counted)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="auditor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what was counted, and stop."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopping.wait(self._every_sec)
            try:
                self.write(all_refusals=is_last)
                seal(self._services)
            except TransientError as error:
                log.warning("the audit log cannot be written now", error=error.message)
            except Exception:
                log.exception("the audit log failed")

    def write(self, *, all_refusals: bool = True) -> None:
        """Write what was counted into the inbox; refusals if they are due. What the database cannot hold is logged and dropped.

        Raises:
            TransientError: If the database is away; then it is kept.
        """
        with self._lock:
            counts = dict(self._downloads.counts)
            refusals = self._refusals_of_keys.counts | self._refusals.counts
            if refusals and (all_refusals or time.monotonic() >= self._refusals_due):
                counts |= refusals
                self._refusals_due = time.monotonic() + REFUSALS_EVERY_SEC
        if not counts:
            return
        try:
            self._insert(counts)
        except TransientError:
            raise
        except TunefarmError:
            for counted, count in counts.items():
                try:
                    self._insert({counted: count})
                except TransientError:
                    raise
                except TunefarmError as error:
                    log.warning(
                        "an entry of the audit log cannot be stored",
                        error=error.message,
                        action=counted.action.value,
                        actor=counted.actor,
                        subject=clean(counted.subject or ""),
                        count=count,
                    )
                self._take_off({counted: count})
        else:
            self._take_off(counts)

    def _insert(self, counts: dict[_Counted, int]) -> None:
        with self._services.uow.write() as repos:
            for counted, count in counts.items():
                repos.audit.note(**asdict(counted), count=count if count > 1 else None)

    def _take_off(self, written: dict[_Counted, int]) -> None:
        with self._lock:
            for counts in (self._downloads, self._refusals_of_keys, self._refusals):
                counts.take_off(written)

    def check(self, head: tuple[int, str] | None = None) -> CheckedLog:
        """Check the whole chain, as `check_log`; one check at a time in this process, because each reads the whole log.

        Raises:
            TransientError: ``audit-check-running``.
        """
        if not self._checking.acquire(blocking=False):
            raise TransientError(
                "a check of the audit log is running: try again when it has ended",
                code="audit-check-running",
                retry_after_sec=_CHECK_AGAIN_SEC,
            )
        try:
            return check_log(self._services, head)
        finally:
            self._checking.release()


def seal(services: Services) -> int:
    """Move all entries of the inbox into the log, part by part; return how many.

    Raises:
        TransientError: If the database is away.
    """
    sealed = 0
    while True:
        with services.uow.read() as repos:
            if repos.audit.is_sealed():
                return sealed
        with services.uow.write() as repos:
            count = repos.audit.seal(_PART)
            seq, head = repos.audit.head()
        if not count:
            return sealed  # another process is at it
        sealed += count
        # A copy of the log elsewhere shows later what the database was made to forget.
        log.info("audit log sealed", seq=seq, hash=head)


def sealed_as_far_as_possible(services: Services) -> None:
    """Seal before somebody looks; while that fails they see what was sealed before, and how much waits."""
    try:
        seal(services)
    except TransientError:
        pass
    except Exception:
        log.exception("the audit log cannot be sealed")


def waiting_entries(services: Services) -> WaitingEntries:
    """Return how many entries are not in the chain yet, and since when."""
    with services.uow.read() as repos:
        return repos.audit.waiting()


def all_entries(services: Services, after: int = 0) -> Iterator[AuditEntry]:
    """Yield the log's entries after this number, oldest first; each part in a transaction of its own."""
    while True:
        with services.uow.read() as repos:
            entries = repos.audit.after(after, limit=_PART)
        yield from entries
        if len(entries) < _PART:
            return
        after = entries[-1].seq


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLog:
    """What a check of the log found.

    Attributes:
        seq: The number of the last entry that is right, which is the log's last one if nothing is broken.
        hash: Its hash.
        pruned: How many entries were pruned at its begin.
        broken: Where the chain does not hold; None if it does.
        waiting: How many entries are not in the chain yet.
        waiting_since: The time of the oldest of them; None if there is none.
    """

    seq: int
    hash: str
    pruned: int
    broken: ChainBreak | None
    waiting: int
    waiting_since: float | None


def check_log(services: Services, head: tuple[int, str] | None = None) -> CheckedLog:
    """Check the whole chain.

    Args:
        services: The process's services.
        head: The number and hash of an entry that was noted before: the log must still have it.
    """
    sealed_as_far_as_possible(services)
    check = ChainCheck(head)
    for entry in all_entries(services):
        if not check.take(asdict(entry)):
            break
    waiting = waiting_entries(services)
    broken = check.end()
    return CheckedLog(
        seq=check.seq,
        hash=check.hash,
        pruned=check.pruned,
        broken=broken,
        waiting=waiting.count,
        waiting_since=waiting.since,
    )
