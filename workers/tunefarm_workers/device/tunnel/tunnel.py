"""The device's way over the gateway: a certificate that is renewed, and a link that uses it."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError, TransientError
from tunefarm_workers.device.api_client import Certificate
from tunefarm_workers.device.backoff import Backoff
from tunefarm_workers.device.rpc.wire import Address
from tunefarm_workers.device.tunnel.certificate import DeviceKey, renewal_at
from tunefarm_workers.device.tunnel.link import GatewayAccess, GatewayLink

log = logging.getLogger("tunefarm.device")

_PATIENCE_SEC = 30.0
"""After so long without the gateway, the agent asks again where it is: it may have moved, or have another authority."""


class Api(Protocol):
    """The call of `api_client.ApiClient`."""

    def certify(self, device_id: str, rpc_key: str, request: str) -> Certificate: ...


class Tunnel:
    """Keeps the device connected with the farm's gateway; `tick` maintains it. Concurrency: one thread.

    Args:
        url: The API's URL: its host is the gateway's, if the farm names none.
        connect: As of `GatewayLink`.
        rpc_key: As of `GatewayLink`.
        address: The gateway's address as seen from here; None for what the API says.
    """

    def __init__(
        self,
        api: Api,
        url: str,
        connect: Callable[[], tuple[socket.socket, int]],
        *,
        rpc_key: str,
        address: Address | None = None,
    ) -> None:
        self._api = api
        self._host = urlsplit(url).hostname or "127.0.0.1"
        self._address = address
        self._connect = connect
        self._rpc_key = rpc_key
        self._key = DeviceKey()
        self._link: GatewayLink | None = None
        self._device_id = ""
        self._renew_at = 0.0
        self._ask_at = 0.0
        self._connected_at = 0.0
        self._backoff = Backoff(first_sec=0.5, most_sec=10.0)

    @property
    def is_connected(self) -> bool:
        """Whether the gateway is there."""
        return self._link is not None and self._link.is_connected

    def tick(self, device_id: str) -> None:
        """Get a certificate, or the next one, if it is time.

        Args:
            device_id: What the farm calls the device now.
        """
        now = time.monotonic()
        if self.is_connected or device_id != self._device_id:
            self._connected_at = now
        is_due = (
            device_id != self._device_id
            or time.time() >= self._renew_at
            or now - self._connected_at > _PATIENCE_SEC
        )
        if not is_due or now < self._ask_at:
            return
        try:
            certificate = self._api.certify(device_id, self._rpc_key, self._key.request)
            access = GatewayAccess(
                address=self._address or (certificate.host or self._host, certificate.port),
                context=self._key.context(certificate.certificate, certificate.authority),
            )
            self._renew_at = renewal_at(certificate.certificate)
        except (TransientError, NotFoundError, InvalidInputError, ssl.SSLError, ValueError) as error:
            wait_sec = self._backoff.next_sec()
            log.warning("no certificate for the gateway: %s; trying again in %.1f s", error, wait_sec)
            self._ask_at = now + wait_sec
            return
        self._backoff.reset()
        self._connected_at = now
        if self._link is None:
            self._link = GatewayLink(access, self._connect, rpc_key=self._rpc_key)
        else:
            self._link.use(access, anew=device_id != self._device_id)
        self._device_id = device_id

    def close(self) -> None:
        """End the link and its sessions."""
        if self._link is not None:
            self._link.close()
