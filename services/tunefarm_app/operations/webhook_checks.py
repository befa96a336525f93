"""Are webhooks told what they have to be told? Says which are not, and not where they lead: fewer may know that."""

from __future__ import annotations

from tunefarm_app.operations.findings import Finding, failed, ok, warning
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import WebhookHealth
from tunefarm_tuning.core.untrusted_text import clean

OVERDUE_SEC = 60.0
FAILING_SEC = 600.0
_MOST_NAMED = 3


def check_webhooks(services: Services) -> Finding:
    """Whether somebody sends what is due, and receivers take it."""
    with services.uow.read() as repos:
        webhooks = repos.deliveries.health()
    overdue = max(webhooks, key=lambda webhook: webhook.overdue_sec, default=None)
    if overdue is not None and overdue.overdue_sec > OVERDUE_SEC:
        return failed(
            "webhooks",
            f"{overdue.id} has to be told something for {overdue.overdue_sec:.0f} s, and nobody does it",
            "Start an API process: it sends them. If one runs, its log says what keeps it from that.",
        )
    bad = [webhook for webhook in webhooks if _is_bad(webhook)]
    if bad:
        more = f", and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
        return warning(
            "webhooks",
            "; ".join(map(_why, bad[:_MOST_NAMED])) + more,
            "`tunefarm webhooks deliveries WEBHOOK_ID` shows what its receiver answers. Once that is put right: "
            "`tunefarm webhooks enable`, for one that is disabled; or `tunefarm webhooks delete`.",
        )
    waiting = sum(webhook.pending for webhook in webhooks)
    return ok(
        "webhooks",
        f"{len(webhooks)} webhooks, {waiting} deliveries waiting" if webhooks else "there are none",
    )


def _is_bad(webhook: WebhookHealth) -> bool:
    return webhook.state == "disabled" or (
        webhook.state == "failing" and (webhook.failing_sec or 0.0) > FAILING_SEC
    )


def _why(webhook: WebhookHealth) -> str:
    if webhook.state == "disabled":
        return f"{webhook.id} is disabled: {clean(webhook.disabled_reason, 200)}"
    minutes = (webhook.failing_sec or 0.0) / 60
    return f"{webhook.id} has failed for {minutes:.0f} min, at each of {webhook.failures} attempts"
