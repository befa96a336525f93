"""How both clients are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tunefarm.client.http.connection import find_server
from tunefarm.client.http.links import Link
from tunefarm.client.http.retry import RetryPolicy
from tunefarm.client.http.transport import Transport


class MadeClient:
    """What both clients are made with. A subclass says with which link, and what it opens over it."""

    _make_link: ClassVar[Callable[..., Link]]

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_sec: float = 60.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Connects when it is first used.

        Args:
            url: Where the API answers. Left out: ``TUNEFARM_URL``, else the farm that `tunefarm serve` runs for this
                user on this machine.
            api_key: ``tfk_…``. Left out: ``TUNEFARM_API_KEY``, else the key of the farm on this machine, where that is meant.
            timeout_sec: Longest silence of the server in one request.
            retry: When a failed request is sent again.

        Raises:
            InvalidRequestError: ``no-server`` if none is named and none runs here.
        """
        transport = Transport(
            self._make_link, *find_server(url, api_key), timeout_sec=timeout_sec, retry=retry or RetryPolicy()
        )
        self.url = transport.url
        self._open(transport)

    def _open(self, transport: Transport) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<tunefarm.{type(self).__name__} {self.url}>"
