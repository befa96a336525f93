"""``tunefarm webhooks``: create, list, test and delete webhooks."""

from __future__ import annotations

from typing import Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import Limit
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.references import find_job
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import TransientError

app = group(
    "webhooks", "Manage webhooks: URLs that receive the events of jobs. Needs a key with the scope write."
)

WebhookId = Annotated[
    str,
    typer.Argument(metavar="WEBHOOK_ID", help="The webhook: its id, or the first or last characters of it."),
]


@command(app, "create")
def create_webhook(
    out: Output,
    server: Server,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="URL that events are posted to: https://… or http://…")
    ],
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            "-k",
            help="Kind of event to send: finished, succeeded, failed, cancelled, phase, round, device-trouble "
            "and so on; all by default. Can be given several times.",
        ),
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB_ID",
            help="Only events of this job: its id, a part of it, or its model's name.",
        ),
    ] = None,
) -> None:
    """Register a webhook. The secret that signs its deliveries is shown only now."""
    with server.connect() as client:
        job_id = None if job_id is None else find_job(client, job_id)
        webhook = client.webhooks.create(url, kinds=kinds or (), job_id=job_id)
    if out.json:
        out.data(webhook.raw)
        return
    out.note(f"webhook {webhook.id}: {', '.join(webhook.kinds) or 'everything'}")
    out.text(webhook.secret)


@command(app, "list")
def list_webhooks(out: Output, server: Server) -> None:
    """List the webhooks, including disabled ones."""
    with server.connect() as client:
        webhooks = client.webhooks.list()
    out.items(
        webhooks,
        {
            "webhook": lambda webhook: webhook.id,
            "URL": lambda webhook: webhook.url,
            "kinds": lambda webhook: ", ".join(webhook.kinds) or "everything",
            "job": lambda webhook: webhook.job_id or "all",
            "created": lambda webhook: quantities.local_time(webhook.created_at),
            ">failures": lambda webhook: webhook.failures,
            "disabled": lambda webhook: webhook.disabled_reason or quantities.NONE,
        },
    )


@command(app, "delete")
def delete_webhook(out: Output, server: Server, webhook_id: WebhookId) -> None:
    """Delete a webhook and its deliveries."""
    with server.connect() as client:
        webhook_id = client.webhooks.get(webhook_id).id
        client.webhooks.delete(webhook_id)
    out.result({"id": webhook_id, "deleted": True}, f"{webhook_id} is deleted")


@command(app, "enable")
def enable_webhook(out: Output, server: Server, webhook_id: WebhookId) -> None:
    """Enable a disabled webhook. It receives events from now on."""
    with server.connect() as client:
        webhook = client.webhooks.enable(webhook_id)
    out.result(webhook.raw, f"{webhook.id} is enabled")


@command(app, "disable")
def disable_webhook(out: Output, server: Server, webhook_id: WebhookId) -> None:
    """Disable a webhook until it is enabled. Its pending deliveries are dropped."""
    with server.connect() as client:
        webhook = client.webhooks.disable(webhook_id)
    out.result(webhook.raw, f"{webhook.id} is disabled")


@command(app, "deliveries")
def list_deliveries(
    out: Output,
    server: Server,
    webhook_id: WebhookId,
    state: Annotated[
        str | None, typer.Option("--state", help="Only deliveries in this state: pending, delivered, failed.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List a webhook's deliveries and their results, newest first."""
    with server.connect() as client:
        deliveries = out.first(client.webhooks.deliveries(webhook_id, state=state), limit)
    out.items(
        deliveries,
        {
            "delivery": lambda delivery: delivery.id,
            "kind": lambda delivery: delivery.kind,
            "job": lambda delivery: delivery.job_id or quantities.NONE,
            ">event": lambda delivery: quantities.NONE if delivery.seq is None else delivery.seq,
            "when": lambda delivery: quantities.local_time(delivery.created_at),
            "state": lambda delivery: delivery.state,
            ">attempts": lambda delivery: delivery.attempts,
            ">status": lambda delivery: quantities.NONE if delivery.status is None else delivery.status,
            ">took": lambda delivery: quantities.latency(delivery.latency_sec),
            "error": lambda delivery: delivery.error,
        },
    )


@command(app, "test")
def test_webhook(out: Output, server: Server, webhook_id: WebhookId) -> None:
    """Send a webhook a test event and show the result."""
    with server.connect() as client:
        delivery = client.webhooks.test(webhook_id)
    if out.json:
        out.data(delivery.raw)
    elif not delivery.error:
        out.text(f"{delivery.id}: answered {delivery.status} in {quantities.latency(delivery.latency_sec)}")
    if delivery.error:
        raise TransientError(f"the delivery failed: {delivery.error}", code="webhook-failed", id=delivery.id)
