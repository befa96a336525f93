"""Webhooks: URLs that events of jobs are sent to."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, func, or_, select, update

from tunefarm_db.acting import acting
from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository, equal
from tunefarm_db.repositories.farm.counters import Counter, Counters
from tunefarm_db.tables import WebhookDeliveryRow, WebhookRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import DeliveryState, Event, Webhook
from tunefarm_tuning.core.errors import NotFoundError
from tunefarm_tuning.core.untrusted_text import clean

_WEBHOOKS = table_of(WebhookRow)
_DELIVERIES = table_of(WebhookDeliveryRow)

DISABLED = "the webhook is disabled"


def names_of(event: Event) -> tuple[str, ...]:
    """Return the kinds that match the event in a subscription: its own, and how a job ended (``failed``)."""
    state = event.data.get("state") if event.kind == "finished" else None
    return (event.kind, state) if isinstance(state, str) else (event.kind,)


class Webhooks(Repository):
    """Webhooks: their receivers, and whether they are enabled."""

    def add(self, *, url: str, kinds: Sequence[str], job_id: str | None, secret: str) -> Webhook:
        """Store a webhook; it is sent events from now on. Raises `ConflictError` for an unknown job."""
        values = {"url": url, "kinds": list(kinds), "job_id": job_id, "secret": secret}
        return self._add(Webhook, _WEBHOOKS, {"id": new_id("whk"), "owner": acting().owner, **values})

    def get(self, webhook_id: str) -> Webhook:
        """Return the webhook.

        Raises:
            NotFoundError: If there is no such webhook.
        """
        missing = NotFoundError(
            f"there is no such webhook: {clean(webhook_id, 60)}",
            code="webhook-not-found",
            webhook_id=webhook_id,
        )
        return self._required(Webhook, select(_WEBHOOKS).where(WebhookRow.id == webhook_id), missing)

    def count(self, *, owner: str | None = None) -> int:
        """Return the number of webhooks, of all owners or one."""
        wanted = equal(_WEBHOOKS.c, owner=owner)
        return int(self._run(select(func.count()).select_from(_WEBHOOKS).where(*wanted)).scalar_one())

    def subscribed_to(self, event: Event) -> tuple[str, ...]:
        """Return the ids of the webhooks that subscribed to the event."""
        query = select(WebhookRow.id, WebhookRow.kinds).where(
            WebhookRow.disabled_at.is_(None),
            or_(WebhookRow.job_id.is_(None), WebhookRow.job_id == event.job_id),
        )
        names = set(names_of(event))
        return tuple(id_ for id_, kinds in self._run(query) if not kinds or names & set(kinds))

    def succeeded(self, webhook_id: str) -> None:
        """Reset the failures after an attempt that succeeded."""
        self._run(
            update(_WEBHOOKS)
            .where(WebhookRow.id == webhook_id, WebhookRow.failures > 0)
            .values(failures=0, failing_since=None)
        )

    def failed(self, webhook_id: str) -> Webhook | None:
        """Count a failed attempt; None if the webhook was deleted."""
        statement = (
            update(_WEBHOOKS)
            .where(WebhookRow.id == webhook_id)
            .values(
                failures=WebhookRow.failures + 1,
                failing_since=func.coalesce(WebhookRow.failing_since, db_now()),
            )
        )
        return self._first(Webhook, statement.returning(_WEBHOOKS))

    def disable(self, webhook_id: str, reason: str) -> bool:
        """Disable the webhook and drop its waiting deliveries; return False if it was disabled already."""
        disabled = self._run(
            update(_WEBHOOKS)
            .where(WebhookRow.id == webhook_id, WebhookRow.disabled_at.is_(None))
            .values(disabled_at=db_now(), disabled_reason=reason)
        )
        if disabled.rowcount == 0:
            return False
        given_up = self._run(
            update(_DELIVERIES)
            .where(
                WebhookDeliveryRow.webhook_id == webhook_id, WebhookDeliveryRow.state == DeliveryState.PENDING
            )
            .values(state=DeliveryState.FAILED, error=DISABLED, finished_at=db_now(), lease_until=None)
        ).rowcount
        if given_up:
            Counters(self._connection).add(Counter.DELIVERIES, {"given-up": given_up}, of=webhook_id)
        return True

    def enable(self, webhook_id: str) -> Webhook:
        """Enable the webhook; an enabled one stays as it is.

        Raises:
            NotFoundError: If there is no such webhook.
        """
        self._run(
            update(_WEBHOOKS)
            .where(WebhookRow.id == webhook_id, WebhookRow.disabled_at.is_not(None))
            .values(disabled_at=None, disabled_reason="", failures=0, failing_since=None)
        )
        return self.get(webhook_id)

    def delete(self, webhook_id: str) -> None:
        """Delete the webhook and its deliveries.

        Raises:
            NotFoundError: If there is no such webhook.
        """
        self.get(webhook_id)
        # The webhook first, as in `Deliveries.settle`: in another order both could deadlock.
        self._run(delete(_WEBHOOKS).where(WebhookRow.id == webhook_id))
        self._run(delete(_DELIVERIES).where(WebhookDeliveryRow.webhook_id == webhook_id))

    # The last method: in the class's code below it, `list` would mean this method.
    def list(self) -> tuple[Webhook, ...]:
        """Return all webhooks, oldest first."""
        return self._all(Webhook, select(_WEBHOOKS).order_by(WebhookRow.id))
