"""Use cases of webhooks: register, test, enable, disable, delete."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_app.webhooks.address import checked_addresses, parse_url
from tunefarm_app.webhooks.request import new_secret
from tunefarm_db.acting import acting
from tunefarm_db.states.job import JobState
from tunefarm_db.values import BY_A_PERSON, AuditAction, Delivery, Webhook
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

KINDS = (
    "queued",
    "phase",
    "round",
    "confirmed",
    "unconfirmed",
    "waiting",
    "paused",
    "resumed",
    "priority",
    "budget",
    "retry",
    "retried",
    "device-trouble",
    "lane-lost",  # a track of a job ended: tracks were called lanes
    "compile-now",
    "quantised",
    "draft",
    "undrafted",
    "network-timed",
    "network-untimed",
    "measure",
    "measured",
    "unmeasured",
    "finished",
    *(state.value for state in JobState if state.is_finished),
)
"""The subscriptions of a webhook: kinds of events, and final states of jobs."""

MAX_WEBHOOKS = 100
"""Maximum number of webhooks: each event is matched against all of them."""

MAX_PER_OWNER = 25
"""Of these, one key and those that it was rotated to may have so many: nobody takes them all from the others."""

MAX_WAITING_TESTS = 32
"""Test events of a webhook that wait: one that is never answered keeps each of them for a day."""


def create_webhook(
    services: Services,
    *,
    url: str,
    kinds: Sequence[str] = (),
    job_id: str | None = None,
    by_key_id: str | None = None,
) -> Webhook:
    """Register a webhook. Its secret is shown only in the answer.

    Args:
        services: The process's services.
        url: The receiver of events.
        kinds: Events to send, out of `KINDS`; empty for all.
        job_id: The job whose events are sent: its id, a part of it, or its model's name; None for all jobs.
        by_key_id: The key of the request, for the log.

    Raises:
        InvalidInputError: ``webhook-url``, ``webhook-address``, ``unknown-kind``.
        NotFoundError: ``job-not-found``.
        ConflictError: ``too-many-webhooks``.
    """
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise InvalidInputError(
            f"unknown kind {', '.join(clean(kind, 40) for kind in unknown)}: the kinds are {', '.join(KINDS)}",
            code="unknown-kind",
            kinds=list(KINDS),
        )
    receiver = parse_url(url)
    checked_addresses(receiver, allow_private=services.settings.webhook_allow_private)
    with services.uow.write() as repos:
        if job_id is not None:
            job_id = repos.jobs.get(repos.references.find("job", job_id)).id
        if repos.webhooks.count() >= MAX_WEBHOOKS:
            raise ConflictError(f"the limit of {MAX_WEBHOOKS} webhooks is reached", code="too-many-webhooks")
        owner = acting().owner
        if owner is not None and repos.webhooks.count(owner=owner) >= MAX_PER_OWNER:
            raise ConflictError(
                f"this key has {MAX_PER_OWNER} webhooks, which is the limit: delete some",
                code="too-many-webhooks",
            )
        webhook = repos.webhooks.add(
            url=url, kinds=[kind for kind in KINDS if kind in kinds], job_id=job_id, secret=new_secret()
        )
        repos.audit.note(AuditAction.WEBHOOK_CREATED, webhook.id, host=receiver.host, job_id=job_id)
    # The URL is left out: for some receivers it is the password.
    log.info("webhook created", webhook_id=webhook.id, host=receiver.host, by_key_id=by_key_id)
    return webhook


def try_webhook(services: Services, webhook_id: str) -> Delivery:
    """Queue a test event for the webhook; return its delivery, which is sent within moments.

    Raises:
        NotFoundError: ``webhook-not-found``.
        ConflictError: ``webhook-disabled``, ``too-many-tests``.
    """
    with services.uow.write() as repos:
        if repos.webhooks.get(webhook_id).disabled_at is not None:
            raise ConflictError("the webhook is disabled: enable it first", code="webhook-disabled")
        if repos.deliveries.waiting_tests(webhook_id) >= MAX_WAITING_TESTS:
            raise ConflictError(
                f"{MAX_WAITING_TESTS} test events of the webhook wait to be sent", code="too-many-tests"
            )
        repos.audit.note(AuditAction.WEBHOOK_TESTED, webhook_id)
        return repos.deliveries.queue_test(webhook_id)


def enable_webhook(services: Services, webhook_id: str, *, by_key_id: str | None = None) -> Webhook:
    """Enable a disabled webhook: it gets events from now on.

    Raises:
        NotFoundError: ``webhook-not-found``.
    """
    with services.uow.write() as repos:
        before = repos.webhooks.get(webhook_id)
        webhook = repos.webhooks.enable(webhook_id)
        if before.disabled_at is not None:
            repos.audit.note(AuditAction.WEBHOOK_ENABLED, webhook_id)
    log.info("webhook enabled", webhook_id=webhook_id, by_key_id=by_key_id)
    return webhook


def disable_webhook(services: Services, webhook_id: str, *, by_key_id: str | None = None) -> Webhook:
    """Disable a webhook and drop its waiting deliveries; a disabled one stays as it is.

    Raises:
        NotFoundError: ``webhook-not-found``.
    """
    with services.uow.write() as repos:
        disabled = repos.webhooks.disable(webhook_id, BY_A_PERSON)
        webhook = repos.webhooks.get(webhook_id)
        if disabled:
            repos.audit.note(AuditAction.WEBHOOK_DISABLED, webhook_id)
    if disabled:
        log.info(
            "webhook disabled", webhook_id=webhook_id, reason=webhook.disabled_reason, by_key_id=by_key_id
        )
    return webhook


def delete_webhook(services: Services, webhook_id: str, *, by_key_id: str | None = None) -> None:
    """Delete a webhook and its deliveries.

    Raises:
        NotFoundError: ``webhook-not-found``.
    """
    with services.uow.write() as repos:
        repos.webhooks.delete(webhook_id)
        repos.audit.note(AuditAction.WEBHOOK_DELETED, webhook_id)
    log.info("webhook deleted", webhook_id=webhook_id, by_key_id=by_key_id)
