"""Deliveries of events to webhooks, and their results.

A delivery is stored in its event's transaction: none is lost, and none is of an event that was rolled back.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import (
    ColumnElement,
    Subquery,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    union_all,
    update,
)

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository, equal
from tunefarm_db.repositories.farm.counters import Counter, Counters
from tunefarm_db.repositories.webhooks.webhooks import Webhooks
from tunefarm_db.tables import CounterRow, EventRow, WebhookDeliveryRow, WebhookRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import (
    ClaimedDelivery,
    Delivery,
    DeliveryState,
    Event,
    Page,
    WebhookHead,
    WebhookHealth,
)
from tunefarm_tuning.core.errors import NotFoundError

_DELIVERIES = table_of(WebhookDeliveryRow)
_WEBHOOKS = table_of(WebhookRow)
_Row = WebhookDeliveryRow
_EARLIER = _DELIVERIES.alias("earlier")

_RESULTS = {
    DeliveryState.DELIVERED: "delivered",
    DeliveryState.PENDING: "retried",
    DeliveryState.FAILED: "given-up",
}

TEST = "test"
"""The kind of a delivery that belongs to no event."""


class Deliveries(Repository):
    """A webhook gets the events of a job in order: a delivery waits until the one before it has ended."""

    def queue(self, event: Event) -> None:
        """Queue the event for every webhook that subscribed to it, in the event's own transaction."""
        values = {"job_id": event.job_id, "seq": event.seq, "kind": event.kind}
        rows = [
            {"id": new_id("whd"), "webhook_id": webhook_id, **values}
            for webhook_id in Webhooks(self._connection).subscribed_to(event)
        ]
        if rows:
            self._run(insert(_DELIVERIES), rows)

    def queue_test(self, webhook_id: str) -> Delivery:
        """Queue a test event for the webhook."""
        values = {"id": new_id("whd"), "webhook_id": webhook_id, "kind": TEST}
        return self._add(Delivery, _DELIVERIES, values)

    def waiting_tests(self, webhook_id: str) -> int:
        """Return the number of test events of the webhook that have not ended."""
        waiting = equal(_DELIVERIES.c, webhook_id=webhook_id, kind=TEST, state=DeliveryState.PENDING)
        return int(self._run(select(func.count()).select_from(_DELIVERIES).where(*waiting)).scalar_one())

    def get(self, webhook_id: str, delivery_id: str) -> Delivery:
        """Return one delivery of the webhook.

        Raises:
            NotFoundError: If it has no such delivery.
        """
        query = select(_DELIVERIES).where(_Row.id == delivery_id, _Row.webhook_id == webhook_id)
        missing = NotFoundError("there is no such delivery", code="delivery-not-found")
        return self._required(Delivery, query, missing)

    def page(
        self,
        webhook_id: str,
        *,
        state: DeliveryState | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Delivery]:
        """Return deliveries of the webhook, newest first."""
        query = select(_DELIVERIES).where(*equal(_DELIVERIES.c, webhook_id=webhook_id, state=state))
        return self._page(Delivery, query, _Row.id, cursor=cursor, limit=limit)

    def due(
        self, limit: int, *, busy: Collection[str] = (), only: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Return the ids of deliveries to send now, at most one per webhook, the longest due first.

        Webhooks that are `busy` are left out, and where `only` is given, all but those.
        """
        # If a webhook is deleted while an event is added, a delivery without a webhook stays: nobody sends it.
        wanted = [WebhookRow.disabled_at.is_(None), WebhookRow.id.not_in(list(busy))]
        if only is not None:
            wanted.append(WebhookRow.id.in_(list(only)))
        sendable = _sendable_now()
        rank = func.row_number().over(
            partition_by=sendable.c.webhook_id, order_by=(sendable.c.not_before, sendable.c.id)
        )
        first = (
            select(sendable.c.id, sendable.c.not_before, rank.label("rank"))
            .join(_WEBHOOKS, WebhookRow.id == sendable.c.webhook_id)
            .where(*wanted)
            .subquery()
        )
        query = (
            select(first.c.id).where(first.c.rank == 1).order_by(first.c.not_before, first.c.id).limit(limit)
        )
        return tuple(self._run(query).scalars())

    def claim(self, delivery_id: str, lease_sec: float) -> ClaimedDelivery | None:
        """Lease a due delivery; None if another process was faster."""
        statement = (
            update(_DELIVERIES)
            .where(_Row.id == delivery_id, _sendable())
            .values(attempts=_Row.attempts + 1, lease_until=db_now() + lease_sec)
            .returning(_DELIVERIES)
        )
        delivery = self._first(Delivery, statement)
        if delivery is None:
            return None
        webhook = self._run(
            select(WebhookRow.url, WebhookRow.secret).where(WebhookRow.id == delivery.webhook_id)
        ).first()
        if webhook is None:
            return None
        data = self._run(
            select(EventRow.data).where(EventRow.job_id == delivery.job_id, EventRow.seq == delivery.seq)
        ).scalar_one_or_none()
        return ClaimedDelivery(delivery=delivery, url=webhook.url, secret=webhook.secret, data=data or {})

    def settle(
        self,
        delivery: Delivery,
        *,
        state: DeliveryState,
        status: int | None,
        latency_sec: float,
        error: str,
        retry_after_sec: float = 0.0,
    ) -> bool:
        """Store the result of an attempt.

        Args:
            delivery: As it was claimed.
            state: Still pending means that it is sent again.
            status: HTTP status of the answer, None if there was none.
            latency_sec: How long it took.
            error: Why it failed.
            retry_after_sec: When it is sent again.

        Returns:
            False, with nothing written, if another process claimed it since or it was given up.
        """
        final = state is not DeliveryState.PENDING
        statement = (
            update(_DELIVERIES)
            .where(
                _Row.id == delivery.id,
                _Row.state == DeliveryState.PENDING,
                _Row.attempts == delivery.attempts,
            )
            .values(
                state=state,
                status=status,
                latency_sec=latency_sec,
                error=error,
                lease_until=None,
                not_before=db_now() + retry_after_sec,
                finished_at=db_now() if final else None,
            )
        )
        if self._run(statement).rowcount != 1:
            return False
        result = _RESULTS[state]
        Counters(self._connection).add(Counter.DELIVERIES, {result: 1}, of=delivery.webhook_id)
        return True

    def health(self) -> tuple[WebhookHealth, ...]:
        """Return the health of each webhook, oldest first."""
        pending = (
            select(
                _Row.webhook_id,
                func.count().label("pending"),
                (db_now() - func.min(_Row.created_at)).label("oldest_sec"),
                func.max(case((_Row.lease_until > db_now(), 1), else_=0)).label("busy"),
            )
            .where(_Row.state == DeliveryState.PENDING)
            .group_by(_Row.webhook_id)
            .subquery()
        )
        sendable = _sendable_now()
        due = (
            select(sendable.c.webhook_id, (db_now() - func.min(sendable.c.not_before)).label("overdue_sec"))
            .group_by(sendable.c.webhook_id)
            .subquery()
        )
        query = (
            select(
                WebhookRow.id,
                WebhookRow.failures,
                (db_now() - WebhookRow.failing_since).label("failing_sec"),
                WebhookRow.disabled_reason,
                func.coalesce(pending.c.pending, 0).label("pending"),
                func.coalesce(pending.c.oldest_sec, 0.0).label("oldest_sec"),
                case((pending.c.busy == 0, func.coalesce(due.c.overdue_sec, 0.0)), else_=0.0).label(
                    "overdue_sec"
                ),
            )
            .select_from(_WEBHOOKS)
            .outerjoin(pending, pending.c.webhook_id == WebhookRow.id)
            .outerjoin(due, due.c.webhook_id == WebhookRow.id)
            .order_by(WebhookRow.id)
        )
        return self._all(WebhookHealth, query)

    def heads(self) -> tuple[WebhookHead, ...]:
        """Return the heads of all webhooks. Called often, so it does not count waiting deliveries."""
        newest = select(func.max(_Row.id)).where(_Row.webhook_id == WebhookRow.id).scalar_subquery()
        attempts = (
            select(func.coalesce(func.sum(CounterRow.value), 0.0))
            .where(CounterRow.name == Counter.DELIVERIES.value)
            .scalar_subquery()
        )
        query = select(
            WebhookRow.id,
            WebhookRow.failures,
            WebhookRow.disabled_at,
            newest.label("newest"),
            attempts.label("attempts"),
        ).order_by(WebhookRow.id)
        return self._all(WebhookHead, query)

    def forget(self, age_sec: float, *, limit: int) -> int:
        """Delete deliveries that ended `age_sec` ago, and those of deleted webhooks; return how many."""
        orphaned = ~exists().where(WebhookRow.id == _Row.webhook_id)
        old = select(_Row.id).where(or_(_Row.finished_at < db_now() - age_sec, orphaned)).limit(limit)
        return int(self._run(delete(_DELIVERIES).where(_Row.id.in_(old))).rowcount)


def _is_due() -> ColumnElement[bool]:
    return and_(
        _Row.state == DeliveryState.PENDING,
        _Row.not_before <= db_now(),
        or_(_Row.lease_until.is_(None), _Row.lease_until < db_now()),
    )


def _sendable() -> ColumnElement[bool]:
    """Return the condition for one delivery; for many, `_sendable_now` is quicker."""
    earlier = exists().where(
        _EARLIER.c.webhook_id == _Row.webhook_id,
        _EARLIER.c.job_id == _Row.job_id,
        _EARLIER.c.seq < _Row.seq,
        _EARLIER.c.state == DeliveryState.PENDING,
    )
    return and_(_is_due(), ~earlier)


def _sendable_now() -> Subquery:
    """Return all deliveries that can be sent now: per webhook, the first of each job. Quick also for a long backlog."""
    columns = (_Row.id, _Row.webhook_id, _Row.not_before)
    first = (
        select(_Row.webhook_id, _Row.job_id, func.min(_Row.seq).label("seq"))
        .where(_Row.state == DeliveryState.PENDING, _Row.job_id.is_not(None))
        .group_by(_Row.webhook_id, _Row.job_id)
        .subquery()
    )
    of_jobs = (
        select(*columns)
        .join(
            first,
            and_(
                first.c.webhook_id == _Row.webhook_id, first.c.job_id == _Row.job_id, first.c.seq == _Row.seq
            ),
        )
        .where(_is_due())
    )
    tests = select(*columns).where(_is_due(), _Row.job_id.is_(None))
    return union_all(of_jobs, tests).subquery()
