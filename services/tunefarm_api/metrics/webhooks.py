"""Metrics of webhooks, summed over all of them: URLs and ids are secret."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tunefarm_db.values import WEBHOOK_STATES, WebhookHealth

_RESULTS = ("delivered", "retried", "given-up")


def webhook_metrics(webhooks: Sequence[WebhookHealth], counted: Mapping[str, float]) -> Iterator[Metric]:
    """Yield the metrics.

    Args:
        webhooks: How each of them does.
        counted: Attempts that there ever were, by how they ended.
    """
    count = GaugeMetricFamily("tunefarm_webhooks", "Webhooks by how they do.", labels=("state",))
    states = Counter(webhook.state for webhook in webhooks)
    for state in WEBHOOK_STATES:
        count.add_metric((state,), states[state])
    yield count
    ended = CounterMetricFamily(
        "tunefarm_webhook_deliveries", "Attempts to tell a webhook, by how they ended.", labels=("result",)
    )
    for result in _RESULTS:
        ended.add_metric((result,), counted.get(result, 0.0))
    yield ended
    yield GaugeMetricFamily(
        "tunefarm_webhook_deliveries_pending",
        "Deliveries that wait, or are under way.",
        value=sum(webhook.pending for webhook in webhooks),
    )
    yield GaugeMetricFamily(
        "tunefarm_webhook_oldest_pending_seconds",
        "Age of the oldest delivery that waits, or is under way.",
        value=max((webhook.oldest_sec for webhook in webhooks), default=0.0),
    )
    yield GaugeMetricFamily(
        "tunefarm_webhook_overdue_seconds",
        "How long the delivery that is due the longest has been due, to a webhook that nobody tells anything.",
        value=max((webhook.overdue_sec for webhook in webhooks), default=0.0),
    )
