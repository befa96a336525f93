"""The farm's metrics for Prometheus, computed from the database at each request.

A farm has many processes that come and go, so no process keeps a count in its memory. The present state is read from the
open rows. Totals are read from the table of counters; a counter grows in the transaction of the event that it counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tunefarm_api.metrics.devices import device_metrics
from tunefarm_app.runtime.composition import Services
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.repositories.farm.statistics import OpenSteps
from tunefarm_db.states.job import JobState
from tunefarm_db.values import WEBHOOK_STATES, StepKind, StepState, WebhookHealth
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.process.sandbox import SandboxState, sandbox_state


def render_metrics(services: Services, accept: str) -> tuple[bytes, str]:
    """Return the metrics and their media type: OpenMetrics if `accept` asks for it, else Prometheus's text.

    Raises:
        TransientError: If the database is away; then the scrape fails.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Farm(services))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Farm(Collector):
    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> list[Metric]:
        return []  # else registering would read the database once more

    def collect(self) -> Iterator[Metric]:
        with self._services.uow.read() as repos:
            jobs = repos.statistics.jobs_by_state()
            steps = repos.statistics.open_steps()
            devices = repos.statistics.devices()
            counters = repos.counters.all()
            database_bytes = repos.statistics.database_bytes()
            webhooks = repos.deliveries.health()
            unsealed, now = repos.audit.waiting(), repos.now()
        yield _gauge("tunefarm_build_info", "Always 1; the version of this API.", version=version("tunefarm"))
        yield _sandbox(sandbox_state())
        yield from _jobs(jobs)
        yield from _steps(steps)
        yield from device_metrics(devices, counters[Counter.MEASURE_SEC])
        yield from _trials(counters)
        yield from webhook_metrics(webhooks, counters[Counter.DELIVERIES])
        yield _gauge(
            "tunefarm_audit_unsealed", "Entries of the audit log that are not chained yet.", unsealed.count
        )
        yield _gauge(
            "tunefarm_audit_oldest_unsealed_seconds",
            "Age of the oldest of them; more than some seconds are a fault.",
            0.0 if unsealed.since is None else max(now - unsealed.since, 0.0),
        )
        yield _gauge("tunefarm_database_bytes", "Size of the database on disk.", database_bytes)
        yield from _store(self._services)


def _gauge(name: str, text: str, value: float = 1.0, **labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=tuple(labels))
    family.add_metric(tuple(labels.values()), value)
    return family


def _sandbox(state: SandboxState) -> GaugeMetricFamily:
    return _gauge(
        "tunefarm_sandbox",
        "1 if a child process on this API's machine would get the whole sandbox, else 0.",
        float(state.is_whole),
        mode=state.mode,
        landlock=str(state.landlock),
        seccomp=str(state.seccomp).lower(),
    )


def _jobs(jobs: dict[JobState, int]) -> Iterator[Metric]:
    family = GaugeMetricFamily("tunefarm_jobs", "Jobs by state.", labels=("state",))
    for state in JobState:
        family.add_metric((state.value,), jobs.get(state, 0))
    yield family


def _steps(steps: tuple[OpenSteps, ...]) -> Iterator[Metric]:
    counts = {(entry.kind, entry.state): entry for entry in steps}
    count = GaugeMetricFamily("tunefarm_steps", "Unfinished steps.", labels=("step", "state"))
    due = GaugeMetricFamily(
        "tunefarm_step_overdue_seconds",
        "Longest time that a due step has waited for a worker.",
        labels=("step",),
    )
    oldest = GaugeMetricFamily(
        "tunefarm_step_oldest_ready_seconds",
        "Age of the oldest step without a worker, including waits for a device or a back-off.",
        labels=("step",),
    )
    age = GaugeMetricFamily(
        "tunefarm_step_lease_age_seconds",
        "Longest time that a worker has held a step.",
        labels=("step",),
    )
    lease_left = GaugeMetricFamily(
        "tunefarm_step_lease_left_seconds",
        "Time until the first lease of a step expires; live workers renew their leases.",
        labels=("step",),
    )
    for kind in StepKind:
        for state in (StepState.READY, StepState.LEASED):
            entry = counts.get((kind, state))
            count.add_metric((kind.value, state.value), entry.count if entry else 0)
        ready, held = counts.get((kind, StepState.READY)), counts.get((kind, StepState.LEASED))
        due.add_metric((kind.value,), ready.overdue_sec if ready else 0)
        oldest.add_metric((kind.value,), ready.oldest_sec if ready else 0)
        if held is not None:
            age.add_metric((kind.value,), held.sent_sec)
            if held.lease_left_sec is not None:
                lease_left.add_metric((kind.value,), held.lease_left_sec)
    yield from (count, due, oldest, age, lease_left)


def _trials(counters: dict[Counter, dict[str, float]]) -> Iterator[Metric]:
    trials = CounterMetricFamily("tunefarm_trials", "Trials by outcome.", labels=("outcome",))
    counted = counters[Counter.TRIALS]
    for outcome in sorted({*counted, *(known.value for known in Outcome)}):
        trials.add_metric((outcome,), counted.get(outcome, 0.0))
    yield trials
    yield CounterMetricFamily(
        "tunefarm_build_seconds",
        "Time of building trials.",
        value=sum(counters[Counter.BUILD_SEC].values()),
    )
    yield CounterMetricFamily(
        "tunefarm_measure_seconds",
        "Time of measuring trials, on all devices, including removed ones.",
        value=sum(counters[Counter.MEASURE_SEC].values()),
    )
    late = CounterMetricFamily(
        "tunefarm_late_writes_rejected",
        "Rejected results of workers that had lost their step.",
        labels=("step",),
    )
    for kind in StepKind:
        late.add_metric((kind.value,), counters[Counter.LATE_WRITES].get(kind.value, 0.0))
    yield late


def _store(services: Services) -> Iterator[Metric]:
    try:
        usage = shutil.disk_usage(services.settings.store_dir)
    except OSError:
        return  # not there before the first upload
    yield _gauge("tunefarm_store_free_bytes", "Free space on the store's disk.", usage.free)
    yield _gauge("tunefarm_store_disk_bytes", "Size of the store's disk.", usage.total)
    yield _gauge(
        "tunefarm_store_used_bytes", "Size of models and artifacts in the store.", services.blobs.used_bytes()
    )


def webhook_metrics(webhooks: Sequence[WebhookHealth], counted: Mapping[str, float]) -> Iterator[Metric]:
    """Yield sums over all webhooks, because URLs and ids must not be shown. `counted`: attempts, by result."""
    count = GaugeMetricFamily("tunefarm_webhooks", "Webhooks by state.", labels=("state",))
    for state in WEBHOOK_STATES:
        count.add_metric((state,), sum(webhook.state == state for webhook in webhooks))
    yield count
    ended = CounterMetricFamily(
        "tunefarm_webhook_deliveries", "Attempts to deliver to a webhook, by result.", labels=("result",)
    )
    for result in ("delivered", "retried", "given-up"):
        ended.add_metric((result,), counted.get(result, 0.0))
    yield ended
    yield GaugeMetricFamily(
        "tunefarm_webhook_deliveries_pending",
        "Pending deliveries.",
        value=sum(webhook.pending for webhook in webhooks),
    )
    yield GaugeMetricFamily(
        "tunefarm_webhook_oldest_pending_seconds",
        "Age of the oldest pending delivery.",
        value=max((webhook.oldest_sec for webhook in webhooks), default=0.0),
    )
    yield GaugeMetricFamily(
        "tunefarm_webhook_overdue_seconds",
        "Longest time that a delivery has been overdue, to a webhook that no process sends to.",
        value=max((webhook.overdue_sec for webhook in webhooks), default=0.0),
    )
