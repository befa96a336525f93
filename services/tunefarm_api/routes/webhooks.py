"""``/v1/webhooks``: create, list, test and delete webhooks.

All routes need the scope ``write``, even to read: a webhook's URL can be a secret.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from tunefarm_api.auth import key_of
from tunefarm_api.dependencies import DeliveryId, ServicesDep, WebhookId, operation
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.webhook import NewWebhook, Webhook, WebhookCreate, WebhookDelivery
from tunefarm_app.webhooks.register import (
    create_webhook,
    delete_webhook,
    disable_webhook,
    enable_webhook,
    try_webhook,
)
from tunefarm_db.values import DeliveryState

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])


@router.post("", status_code=201, **operation("write", "Register a webhook", 404, 409))
def add_webhook(body: WebhookCreate, request: Request, services: ServicesDep) -> NewWebhook:
    """It receives events from now on, each at least once, and in order within a job.

    Only this response has the secret that signs the deliveries.
    """
    webhook = create_webhook(
        services, url=body.url, kinds=body.kinds, job_id=body.job_id, by_key_id=key_of(request).id
    )
    return NewWebhook.model_validate(webhook)


@router.get("", **operation("write", "List webhooks"))
def list_webhooks(services: ServicesDep) -> Page[Webhook]:
    """Oldest first, including disabled ones. Never split into parts."""
    with services.uow.read() as repos:
        webhooks = repos.webhooks.list()
    return Page[Webhook](items=[Webhook.model_validate(webhook) for webhook in webhooks], next_cursor=None)


@router.get("/{webhook_id}", **operation("write", "Get a webhook", 404))
def get_webhook(webhook_id: WebhookId, services: ServicesDep) -> Webhook:
    """Never includes the secret."""
    with services.uow.read() as repos:
        return Webhook.model_validate(repos.webhooks.get(webhook_id))


@router.delete("/{webhook_id}", status_code=204, **operation("write", "Delete a webhook", 404))
def remove_webhook(webhook_id: WebhookId, request: Request, services: ServicesDep) -> None:
    """Deletes its deliveries too. Pending ones are not sent."""
    delete_webhook(services, webhook_id, by_key_id=key_of(request).id)


@router.post("/{webhook_id}/enable", **operation("write", "Enable a webhook", 404))
def enable(webhook_id: WebhookId, request: Request, services: ServicesDep) -> Webhook:
    """It receives events from now on. Enabling an enabled webhook has no effect."""
    return Webhook.model_validate(enable_webhook(services, webhook_id, by_key_id=key_of(request).id))


@router.post("/{webhook_id}/disable", **operation("write", "Disable a webhook", 404))
def disable(webhook_id: WebhookId, request: Request, services: ServicesDep) -> Webhook:
    """It receives no events until it is enabled. Pending deliveries are dropped. Disabling it again has no effect."""
    return Webhook.model_validate(disable_webhook(services, webhook_id, by_key_id=key_of(request).id))


@router.post("/{webhook_id}/test", status_code=202, **operation("write", "Test a webhook", 404, 409))
def send_test(webhook_id: WebhookId, services: ServicesDep) -> WebhookDelivery:
    """Queues a delivery of the kind `test`. The delivery shows the result."""
    return WebhookDelivery.model_validate(try_webhook(services, webhook_id))


@router.get("/{webhook_id}/deliveries", **operation("write", "List a webhook's deliveries", 404))
def list_deliveries(
    webhook_id: WebhookId,
    services: ServicesDep,
    state: Annotated[DeliveryState | None, Query(description="Only deliveries in this state.")] = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("whd")] = None,
) -> Page[WebhookDelivery]:
    """Newest first. Ended deliveries are kept for `TUNEFARM_KEEP_DELIVERIES_DAYS` days."""
    with services.uow.read() as repos:
        repos.webhooks.get(webhook_id)
        page = repos.deliveries.page(webhook_id, state=state, cursor=cursor, limit=limit)
    return Page[WebhookDelivery](
        items=[WebhookDelivery.model_validate(delivery) for delivery in page.items],
        next_cursor=page.next_cursor,
    )


@router.get("/{webhook_id}/deliveries/{delivery_id}", **operation("write", "Get a delivery", 404))
def get_delivery(webhook_id: WebhookId, delivery_id: DeliveryId, services: ServicesDep) -> WebhookDelivery:
    """Includes the last attempt and its error."""
    with services.uow.read() as repos:
        return WebhookDelivery.model_validate(repos.deliveries.get(webhook_id, delivery_id))
