"""``client.webhooks``: create, list, test and delete webhooks."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tunefarm.client.errors import WaitTimeoutError
from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import get_all, walk
from tunefarm.client.http.transport import Resource, segment
from tunefarm.client.results.reading import Answer

_POLL_SEC = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Answer):
    """A webhook, without its secret.

    Attributes:
        kinds: Kinds of event that it receives; empty for all.
        job_id: Job whose events it receives; None for all jobs.
        disabled_at: Time of disabling, by a person or after long failure; None if enabled.
    """

    id: str
    url: str
    kinds: tuple[str, ...] = ()
    job_id: str | None = None
    failures: int = 0
    failing_since: float | None = None
    disabled_at: float | None = None
    disabled_reason: str = ""
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook(Webhook):
    """A new webhook. `secret` is shown only now."""

    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery(Answer):
    """A delivery of an event to a webhook.

    Attributes:
        id: Identifier, sent as the header ``webhook-id``.
        state: ``pending``, ``delivered``, ``failed`` (given up).
        status: HTTP status of the last response; None if none.
        error: Error of the last attempt; empty if it succeeded.
    """

    id: str
    job_id: str | None = None
    seq: int | None = None
    kind: str
    state: str
    attempts: int = 0
    status: int | None = None
    latency_sec: float | None = None
    error: str = ""
    created_at: float = 0.0
    finished_at: float | None = None


class AsyncWebhooks(Resource):
    """The server's webhooks. Needs a key with the scope ``write``."""

    async def create(self, url: str, *, kinds: Sequence[str] = (), job_id: str | None = None) -> NewWebhook:
        """Register a webhook. Only this response has the secret that signs the deliveries.

        Args:
            url: URL that events are posted to.
            kinds: Kinds of event to send (``finished``, ``failed``, ``phase``, ``device-trouble``…); all by default.
            job_id: Job whose events are sent; all jobs by default.

        Raises:
            InvalidRequestError: ``webhook-url``, ``webhook-address``, ``unknown-kind``.
            NotFoundError: If there is no such job.
        """
        body = {"url": url, "kinds": list(kinds), "job_id": job_id}
        return NewWebhook.read(await self._transport.post("webhooks", body))

    async def get(self, webhook_id: str) -> Webhook:
        """Return a webhook.

        Raises:
            NotFoundError: If there is no such webhook.
        """
        return Webhook.read(await self._transport.get(f"webhooks/{segment(webhook_id)}"))

    async def list(self) -> tuple[Webhook, ...]:
        """Return all webhooks, including disabled ones, oldest first."""
        return await get_all(self._transport, "webhooks", {}, Webhook.read)

    async def delete(self, webhook_id: str) -> None:
        """Delete a webhook and its deliveries."""
        await self._transport.delete(f"webhooks/{segment(webhook_id)}")

    async def enable(self, webhook_id: str) -> Webhook:
        """Enable a disabled webhook. It receives events from now on."""
        path = f"webhooks/{segment(webhook_id)}/enable"
        return Webhook.read(await self._transport.post(path, repeatable=True))

    async def disable(self, webhook_id: str) -> Webhook:
        """Disable a webhook until it is enabled. Its pending deliveries are dropped."""
        path = f"webhooks/{segment(webhook_id)}/disable"
        return Webhook.read(await self._transport.post(path, repeatable=True))

    async def test(self, webhook_id: str, *, timeout_sec: float = 30.0) -> WebhookDelivery:
        """Send a test event, and return the delivery after its first attempt.

        Args:
            webhook_id: The webhook.
            timeout_sec: Longest wait for the attempt.

        Raises:
            NotFoundError: If there is no such webhook.
            ConflictError: ``webhook-disabled``.
            WaitTimeoutError: If there was no attempt within `timeout_sec`.
        """
        base = f"webhooks/{segment(webhook_id)}"
        delivery = WebhookDelivery.read(await self._transport.post(f"{base}/test"))
        until = time.monotonic() + timeout_sec
        while delivery.state == "pending" and not delivery.error:
            if time.monotonic() >= until:
                raise WaitTimeoutError(f"the test was not sent within {timeout_sec:g} s", code="wait-timeout")
            await self._transport.link.sleep(_POLL_SEC)
            path = f"{base}/deliveries/{segment(delivery.id)}"
            delivery = WebhookDelivery.read(await self._transport.get(path))
        return delivery

    async def deliveries(
        self, webhook_id: str, *, state: str | None = None
    ) -> AsyncIterator[WebhookDelivery]:
        """Yield the webhook's deliveries, newest first.

        Args:
            webhook_id: The webhook.
            state: Only deliveries in this state: ``pending``, ``delivered`` or ``failed``.
        """
        path = f"webhooks/{segment(webhook_id)}/deliveries"
        async for delivery in walk(self._transport, path, {"state": state}, WebhookDelivery.read):
            yield delivery


class Webhooks(Blocking[AsyncWebhooks]):
    """The server's webhooks. Needs a key with the scope ``write``."""

    create = blocking(AsyncWebhooks.create)
    get = blocking(AsyncWebhooks.get)
    list = blocking(AsyncWebhooks.list)
    delete = blocking(AsyncWebhooks.delete)
    enable = blocking(AsyncWebhooks.enable)
    disable = blocking(AsyncWebhooks.disable)
    test = blocking(AsyncWebhooks.test)
    deliveries = blocking_each(AsyncWebhooks.deliveries)
