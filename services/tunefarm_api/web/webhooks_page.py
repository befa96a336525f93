"""The list of webhooks, and the page of one.

All of it needs the scope ``write``, to look as well: a URL can be as good as a password to what it leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of, needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.errors.problems import status_of
from tunefarm_api.schemas.base import cursor_of
from tunefarm_api.web.forms import Form, FormDep
from tunefarm_api.web.rendering import page
from tunefarm_app.runtime.composition import Services
from tunefarm_app.webhooks.address import parse_url
from tunefarm_app.webhooks.register import (
    KINDS,
    create_webhook,
    delete_webhook,
    disable_webhook,
    enable_webhook,
    try_webhook,
)
from tunefarm_db.values import DeliveryState, Webhook, WebhookHealth
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError, TunefarmError

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 50

_COMMANDS: dict[str, Callable[..., Webhook]] = {"enable": enable_webhook, "disable": disable_webhook}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookLine:
    """One webhook, and how it does.

    Attributes:
        host: Where it leads, in short.
    """

    webhook: Webhook
    standing: WebhookHealth
    host: str


@router.get("/webhooks", dependencies=[needs("write")])
def webhooks_page(request: Request, services: ServicesDep) -> HTMLResponse:
    """The list of webhooks."""
    return _webhooks_page(request, services)


def _webhooks_page(
    request: Request, services: Services, *, given: Form | None = None, refused: TunefarmError | None = None
) -> HTMLResponse:
    """Return the page; with a form that was refused, and why, so that nothing has to be entered again."""
    with services.uow.read() as repos:
        standings = {health.id: health for health in repos.deliveries.health()}
        webhooks = repos.webhooks.list()
    lines = [_line(webhook, standings[webhook.id]) for webhook in webhooks if webhook.id in standings]
    shown = page("webhooks.html", request, lines=lines, kinds=KINDS, given=given or {}, refused=refused)
    if refused is not None:
        shown.status_code = status_of(refused)
    return shown


@router.post("/webhooks", dependencies=[needs("write")])
async def register(request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Shows the secret, this once; what is refused is shown again, as it was filled in."""

    def make() -> Webhook:
        return create_webhook(
            services,
            url=form.get("url", "").strip(),
            kinds=[kind for kind in KINDS if f"kind-{kind}" in form],
            job_id=form.get("job", "").strip() or None,
            by_key_id=key_of(request).id,
        )

    try:
        webhook = await run_in_threadpool(make)
    except (InvalidInputError, NotFoundError, ConflictError) as error:
        return await run_in_threadpool(_webhooks_page, request, services, given=form, refused=error)
    return page("webhook_created.html", request, webhook=webhook)


@router.get("/webhooks/{webhook_id}", dependencies=[needs("write")])
def webhook_page(
    webhook_id: str,
    request: Request,
    services: ServicesDep,
    state: Annotated[str, Query(max_length=20)] = "",
    cursor: Annotated[str | None, cursor_of("whd")] = None,
) -> HTMLResponse:
    """A webhook's page, with its deliveries."""
    wanted = DeliveryState(state) if state in set(DeliveryState) else None
    with services.uow.read() as repos:
        webhook = repos.webhooks.get(webhook_id)
        standing = next(health for health in repos.deliveries.health() if health.id == webhook_id)
        deliveries = repos.deliveries.page(webhook_id, state=wanted, cursor=cursor, limit=PAGE_SIZE)
        now = repos.now()
    return page(
        "webhook.html",
        request,
        line=_line(webhook, standing),
        deliveries=deliveries.items,
        now=now,
        state=wanted,
        states=list(DeliveryState),
        cursor=cursor,
        next_cursor=deliveries.next_cursor,
    )


@router.post("/webhooks/{webhook_id}/{command}", dependencies=[needs("write")])
def command_webhook(webhook_id: str, command: str, request: Request, services: ServicesDep) -> Response:
    """Enable, disable, test or delete a webhook."""
    if command == "delete":
        delete_webhook(services, webhook_id, by_key_id=key_of(request).id)
        return RedirectResponse("/webhooks", 303)
    _obey(services, webhook_id, command, key_of(request).id)
    return RedirectResponse(f"/webhooks/{webhook_id}", 303)


def _obey(services: Services, webhook_id: str, command: str, key_id: str) -> None:
    if command == "test":
        try_webhook(services, webhook_id)
    elif command in _COMMANDS:
        _COMMANDS[command](services, webhook_id, by_key_id=key_id)
    else:
        raise InvalidInputError("there is no such command", code="invalid-request")


def _line(webhook: Webhook, standing: WebhookHealth) -> WebhookLine:
    return WebhookLine(webhook=webhook, standing=standing, host=parse_url(webhook.url).host)
