"""The sender: threads that send deliveries to webhooks.

Any number of senders may run at once, in any process: each delivery is leased by a compare-and-set. A delivery whose
sender dies is sent again under the same id.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_app.webhooks.address import Resolver, system_resolver
from tunefarm_app.webhooks.request import TIMEOUT_SEC, Attempt, send
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import ClaimedDelivery, DeliveryState, Webhook
from tunefarm_tuning.core.errors import LeaseLostError, TransientError

log = structlog.stdlib.get_logger(__name__)

LEASE_SEC = 60.0
"""A request takes at most `TIMEOUT_SEC`, plus the resolver's time."""
_GONE = 410
_STOP_SEC = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The schedule of further attempts, and their end.

    Attributes:
        first_sec: Wait after the first failed attempt; it doubles with each one, up to `most_sec`.
        give_up_sec: A delivery that is older than this is not sent again.
        disable_after: A webhook is disabled after this many failed attempts in a row...
        disable_after_sec: ...if the first of them was this long ago.
    """

    first_sec: float = 5.0
    most_sec: float = 3600.0
    give_up_sec: float = 86_400.0
    disable_after: int = 20
    disable_after_sec: float = 86_400.0

    def wait_sec(self, attempts: int) -> float:
        """Return the wait after so many attempts, randomized by half so that deliveries do not come all at once."""
        wait = min(self.most_sec, self.first_sec * 2.0 ** min(attempts - 1, 30))
        return wait * random.uniform(0.5, 1.5)  # noqa: S311  (no secret)

    def is_over(self, webhook: Webhook, now: float) -> bool:
        """Return whether a webhook has failed for too long and must be disabled."""
        since = now if webhook.failing_since is None else webhook.failing_since
        return webhook.failures >= self.disable_after and now - since >= self.disable_after_sec


@dataclass(frozen=True, slots=True)
class _Flight:
    webhook_id: str
    began: float


class WebhookSender:
    """Looks every `every_sec` for due deliveries, and sends them in parallel.

    Failure: errors are logged and tried again; the sender never ends by itself.

    Args:
        services: The process's services.
        every_sec: Seconds between two looks while nothing is due.
        side_by_side: Most requests at once to quick receivers, at most `side_by_side_each` of them to one webhook.
        slow_sec: A receiver that takes longer counts as slow until it is quicker again. It is sent one request at a
            time, outside of that limit, so slow receivers never delay the others.
        patience: When deliveries are sent again.
        timeout_sec: Longest time of one request.
        lease_sec: Length of a delivery's lease.
        resolve: Asks for addresses.
    """

    def __init__(
        self,
        services: Services,
        *,
        every_sec: float = 1.0,
        side_by_side: int = 8,
        side_by_side_each: int = 2,
        slow_sec: float = 1.0,
        patience: Patience | None = None,
        timeout_sec: float = TIMEOUT_SEC,
        lease_sec: float = LEASE_SEC,
        resolve: Resolver = system_resolver,
    ) -> None:
        self._services = services
        self._every_sec = every_sec
        self._most, self._most_each, self._slow_sec = side_by_side, side_by_side_each, slow_sec
        self._patience = patience or Patience()
        self._timeout_sec = timeout_sec
        self._lease_sec = lease_sec
        self._resolve = resolve
        self._lock = threading.Lock()
        self._flights: dict[int, _Flight] = {}  # requests under way, by number
        self._numbers = itertools.count()
        self._slow: set[str] = set()  # webhooks that were slow at their last delivery
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin sending."""
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop. Running requests get some seconds; another sender repeats those without an answer by then."""
        self._stopping.set()
        self._wake.set()
        if self._thread is None:
            return
        self._thread.join()
        until = time.monotonic() + _STOP_SEC
        while time.monotonic() < until and self._under_way():
            self._wake.wait(0.05)
            self._wake.clear()
        self._closed.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                while not self._stopping.is_set() and self.begin_due():
                    pass
            except TransientError as error:
                log.warning("webhooks cannot be sent to now", error=error.message)
            except Exception:
                log.exception("sending to webhooks failed")
            self._wake.wait(self._every_sec)

    def _under_way(self) -> int:
        with self._lock:
            return len(self._flights)

    def begin_due(self) -> int:
        """Start sending due deliveries, one per webhook and as many as the limits allow; return the number.

        Raises:
            TransientError: If the database is away.
        """
        with self._lock:
            now = time.monotonic()
            late = {
                flight.webhook_id for flight in self._flights.values() if now - flight.began > self._slow_sec
            }
            slow = self._slow | late
            busy = Counter(flight.webhook_id for flight in self._flights.values())
        room = self._most - sum(count for webhook_id, count in busy.items() if webhook_id not in slow)
        full = {webhook_id for webhook_id, count in busy.items() if count >= self._most_each}
        idle = slow - set(busy)
        with self._services.uow.read() as repos:
            due = repos.deliveries.due(room, busy=full | slow) if room > 0 else ()
            due += repos.deliveries.due(len(idle), only=idle) if idle else ()
        return sum(self._begin(delivery_id) for delivery_id in due)

    def _begin(self, delivery_id: str) -> bool:
        with self._services.uow.write() as repos:
            claimed = repos.deliveries.claim(delivery_id, self._lease_sec)
        if claimed is None:
            return False
        number = next(self._numbers)
        with self._lock:
            self._flights[number] = _Flight(claimed.delivery.webhook_id, time.monotonic())
        sending = threading.Thread(target=self._deliver, args=[number, claimed], name="webhook", daemon=True)
        try:
            sending.start()
        except RuntimeError:  # no thread can be started; the lease expires
            with self._lock:
                del self._flights[number]
            raise
        return True

    def _deliver(self, number: int, claimed: ClaimedDelivery) -> None:
        delivery = claimed.delivery
        fields = {"webhook_id": delivery.webhook_id, "delivery_id": delivery.id, "job_id": delivery.job_id}
        try:
            attempt = send(
                claimed,
                allow_private=self._services.settings.webhook_allow_private,
                timeout_sec=self._timeout_sec,
                resolve=self._resolve,
            )
            if self._closed.is_set():
                return  # the database is closed; the lease expires
            with self._services.uow.write() as repos:
                disabled = settle(repos, claimed, attempt, self._patience)
            if attempt.error:
                log.warning("delivery failed", error=attempt.error, attempt=delivery.attempts, **fields)
            if disabled:
                log.warning("webhook disabled", webhook_id=delivery.webhook_id, reason=disabled)
        except LeaseLostError:
            log.warning("delivery came too late", **fields)
        except TransientError as error:
            log.warning("result of a delivery cannot be stored", error=error.message, **fields)
        except Exception:
            log.exception("sending a delivery failed", **fields)
        finally:
            with self._lock:
                flight = self._flights.pop(number)
                if time.monotonic() - flight.began > self._slow_sec:
                    self._slow.add(flight.webhook_id)
                else:
                    self._slow.discard(flight.webhook_id)
            self._wake.set()


def settle(repos: Repositories, claimed: ClaimedDelivery, attempt: Attempt, patience: Patience) -> str:
    """Store the result of an attempt and the time of the next; return why the webhook was disabled, if it was.

    Raises:
        LeaseLostError: If another sender has claimed the delivery since; then nothing may be written.
    """
    delivery, now = claimed.delivery, repos.now()
    # The webhook's row first: two deliveries of one webhook that end at once must not deadlock.
    reason = ""
    if not attempt.error:
        repos.webhooks.succeeded(delivery.webhook_id)
        state, wait_sec = DeliveryState.DELIVERED, 0.0
    else:
        webhook = repos.webhooks.failed(delivery.webhook_id)
        if attempt.status == _GONE:
            reason = "the receiver answered 410, so it gets no more events"
        elif webhook is not None and patience.is_over(webhook, now):
            reason = f"{webhook.failures} attempts in a row failed; the last one: {attempt.error}"
        wait_sec = patience.wait_sec(delivery.attempts)
        over = now + wait_sec - delivery.created_at > patience.give_up_sec
        state = DeliveryState.FAILED if over or reason else DeliveryState.PENDING
    if not repos.deliveries.settle(
        delivery,
        state=state,
        status=attempt.status,
        latency_sec=attempt.latency_sec,
        error=attempt.error,
        retry_after_sec=wait_sec,
    ):
        raise LeaseLostError("the delivery is somebody else's")
    return reason if reason and repos.webhooks.disable(delivery.webhook_id, reason) else ""
