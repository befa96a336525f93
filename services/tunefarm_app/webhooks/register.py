"""Webhooks: registered, tried out, enabled again, forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_app.webhooks.address import checked_addresses, parse_url
from tunefarm_app.webhooks.request import new_secret
from tunefarm_db.states.job import JobState
from tunefarm_db.values import BY_A_PERSON, Delivery, Webhook
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
    "lane-lost",
    "finished",
    *(state.value for state in JobState if state.is_finished),
)
"""What a webhook can ask for: the kinds of events, and how a job ended."""

MAX_WEBHOOKS = 100
"""Each event is held against all of them."""


def create_webhook(
    services: Services,
    *,
    url: str,
    kinds: Sequence[str] = (),
    job_id: str | None = None,
    by_key_id: str | None = None,
) -> Webhook:
    """Register a webhook. Its secret is to be shown now, and never again.

    Args:
        services: The process's services.
        url: Where it is told.
        kinds: What it is told of, of `KINDS`; everything where there are none.
        job_id: The one job that it is told of; None for all.
        by_key_id: Whose request this is, for the log.

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
    place = parse_url(url)
    checked_addresses(place, allow_private=services.settings.webhook_allow_private)
    with services.uow.write() as repos:
        if job_id is not None:
            repos.jobs.get(job_id)
        if repos.webhooks.count() >= MAX_WEBHOOKS:
            raise ConflictError(
                f"there are {MAX_WEBHOOKS} webhooks already, and no room for more", code="too-many-webhooks"
            )
        webhook = repos.webhooks.add(
            url=url,
            kinds=[kind for kind in KINDS if kind in kinds],
            job_id=job_id,
            secret=new_secret(),
        )
    # Not the URL: some receivers take it for a password.
    log.info("webhook created", webhook_id=webhook.id, host=place.host, by_key_id=by_key_id)
    return webhook


def try_webhook(services: Services, webhook_id: str) -> Delivery:
    """Have the webhook told of nothing in particular; return the delivery, which is sent in a moment.

    Raises:
        NotFoundError: ``webhook-not-found``.
        ConflictError: ``webhook-disabled``.
    """
    with services.uow.write() as repos:
        if repos.webhooks.get(webhook_id).disabled_at is not None:
            raise ConflictError("the webhook is disabled: enable it first", code="webhook-disabled")
        return repos.deliveries.queue_test(webhook_id)


def enable_webhook(services: Services, webhook_id: str, *, by_key_id: str | None = None) -> Webhook:
    """Let a disabled webhook be told again, of what happens from now on.

    Raises:
        NotFoundError: ``webhook-not-found``.
    """
    with services.uow.write() as repos:
        webhook = repos.webhooks.enable(webhook_id)
    log.info("webhook enabled", webhook_id=webhook_id, by_key_id=by_key_id)
    return webhook


def disable_webhook(services: Services, webhook_id: str, *, by_key_id: str | None = None) -> Webhook:
    """Tell a webhook of nothing any more, what is waiting included; one that is disabled stays as it is.

    Raises:
        NotFoundError: ``webhook-not-found``.
    """
    with services.uow.write() as repos:
        disabled = repos.webhooks.disable(webhook_id, BY_A_PERSON)
        webhook = repos.webhooks.get(webhook_id)
    if disabled:
        log.info(
            "webhook disabled", webhook_id=webhook_id, reason=webhook.disabled_reason, by_key_id=by_key_id
        )
    return webhook


def delete_webhook(services: Services, webhook_id: str, *, by_key_id: str | None = None) -> None:
    """Forget a webhook, and what was sent to it.

    Raises:
        NotFoundError: ``webhook-not-found``.
    """
    with services.uow.write() as repos:
        repos.webhooks.delete(webhook_id)
    log.info("webhook deleted", webhook_id=webhook_id, by_key_id=by_key_id)
