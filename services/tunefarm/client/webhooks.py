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
    """A URL that is told of what happens to jobs, without its secret.

    Attributes:
        kinds: What it is told of; empty for everything.
        job_id: The one job that it is told of; None for all.
        disabled_at: When it was disabled: by a person, or after it failed for too long; None while it is good.
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
    """A webhook that was just registered. `secret` is shown this once."""

    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery(Answer):
    """One event for one webhook, and how it went.

    Attributes:
        id: What the receiver gets as ``webhook-id``.
        state: ``pending``, ``delivered``, ``failed`` (given up).
        status: HTTP status of the last answer; None where there was none.
        error: Why the last attempt failed; empty where it did not.
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
    """Who is told of what happens to jobs. Needs a key with the scope ``write``."""

    async def create(self, url: str, *, kinds: Sequence[str] = (), job_id: str | None = None) -> NewWebhook:
        """Register a URL. The secret that deliveries are signed with is in the answer this once.

        Args:
            url: Where it is told, by POST.
            kinds: What it is told of (``finished``, ``failed``, ``phase``, ``device-trouble``…); everything where it
                is left out.
            job_id: The one job that it is told of; all where it is left out.

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
        """Return all webhooks, the disabled ones too, oldest first."""
        return await get_all(self._transport, "webhooks", {}, Webhook.read)

    async def delete(self, webhook_id: str) -> None:
        """Tell the URL of nothing any more, and forget its deliveries."""
        await self._transport.delete(f"webhooks/{segment(webhook_id)}")

    async def enable(self, webhook_id: str) -> Webhook:
        """Let a webhook that was disabled be told again, of what happens from now on."""
        path = f"webhooks/{segment(webhook_id)}/enable"
        return Webhook.read(await self._transport.post(path, repeatable=True))

    async def disable(self, webhook_id: str) -> Webhook:
        """Tell a webhook of nothing until it is enabled; what waits for it is given up."""
        path = f"webhooks/{segment(webhook_id)}/disable"
        return Webhook.read(await self._transport.post(path, repeatable=True))

    async def test(self, webhook_id: str, *, timeout_sec: float = 30.0) -> WebhookDelivery:
        """Have the webhook told of nothing in particular; return how the first attempt went.

        Raises:
            ConflictError: ``webhook-disabled``.
            WaitTimeoutError: If nothing was heard of it within `timeout_sec`.
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
        """Yield what the webhook was told, and is to be, newest first."""
        path = f"webhooks/{segment(webhook_id)}/deliveries"
        async for delivery in walk(self._transport, path, {"state": state}, WebhookDelivery.read):
            yield delivery


class Webhooks(Blocking[AsyncWebhooks]):
    """Who is told of what happens to jobs. Needs a key with the scope ``write``."""

    create = blocking(AsyncWebhooks.create)
    get = blocking(AsyncWebhooks.get)
    list = blocking(AsyncWebhooks.list)
    delete = blocking(AsyncWebhooks.delete)
    enable = blocking(AsyncWebhooks.enable)
    disable = blocking(AsyncWebhooks.disable)
    test = blocking(AsyncWebhooks.test)
    deliveries = blocking_each(AsyncWebhooks.deliveries)
