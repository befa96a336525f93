"""Keep the device registered: register, send heartbeats, register again if the farm has forgotten it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError, TransientError
from tunefarm_workers.device.backoff import Backoff

log = logging.getLogger("tunefarm.device")


class Api(Protocol):
    """The calls of `api_client.ApiClient`."""

    def register(self, device: Mapping[str, Any]) -> str: ...
    def heartbeat(self, device_id: str, body: Mapping[str, Any]) -> str: ...


class Registration:
    """The device's registration with the API; `tick` maintains it.

    The registration survives an outage of the API: the RPC server continues, and workers measure through it.

    Args:
        device: The description to register; readiness is added.
        heartbeat_sec: Time between heartbeats; a change of ``ready`` or ``reason`` is sent at once.
        clock: Monotonic seconds.

    Attributes:
        device_id: What the farm calls the device; None before the first registration.
        confirmed: Whether the API took the last heartbeat.
        online: Whether the API took it, and it said that workers can measure here.
        key_ended: Whether the API no longer knows the key that the last call was made with.
    """

    def __init__(
        self,
        api: Api,
        device: Mapping[str, Any],
        *,
        heartbeat_sec: float,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._device = device
        self._heartbeat_sec = heartbeat_sec
        self._clock = clock
        self._backoff = Backoff(first_sec=0.5, most_sec=max(10.0, heartbeat_sec))
        self._registered = False
        self._act_at = 0.0
        self._reported: tuple[object, ...] | None = None
        self._farm_says = ""
        self.device_id: str | None = None
        self.confirmed = False
        self.online = False
        self.key_ended = False

    def tick(self, status: Mapping[str, Any]) -> None:
        """Register or send a heartbeat, if it is time.

        Args:
            status: The body of a heartbeat: ``ready``, ``reason``, ``rpc_key`` and ``info``.

        Raises:
            InvalidInputError: If the API will never accept this device. Only before the first registration: a device
                that was at work waits until the mistake is put right.
        """
        now = self._clock()
        news = (status["ready"], status["reason"])
        if now < self._act_at and not (self._registered and self.confirmed and news != self._reported):
            return
        self.key_ended = False
        try:
            if not self._registered:
                self._register(status)
            if self.device_id is not None:
                self._pass_on(self._api.heartbeat(self.device_id, status), own=str(status["reason"]))
            self._reported, self.confirmed = news, True
            self.online = bool(status["ready"])
            self._backoff.reset()
            self._act_at = self._clock() + self._heartbeat_sec
        except NotFoundError as error:
            was_registered, self._registered, self.confirmed = self._registered, False, False
            self.online = False
            log.warning("%s: registering again", error.message)
            self._act_at = 0.0 if was_registered else self._clock() + self._backoff.next_sec()
        except (TransientError, InvalidInputError) as error:
            if self.device_id is None and isinstance(error, InvalidInputError):
                raise
            self.confirmed = self.online = False
            self.key_ended = error.fields.get("status") == 401
            wait_sec = self._backoff.next_sec()
            log.warning("%s; trying again in %.1f s", error.message, wait_sec)
            self._act_at = self._clock() + wait_sec

    def say_goodbye(self, status: Mapping[str, Any]) -> None:
        """Tell the API that the device leaves. If the API is away, it notices the missing heartbeats."""
        if self.device_id is not None and self._registered:
            try:
                self._api.heartbeat(self.device_id, status)
            except (TransientError, InvalidInputError, NotFoundError) as error:
                log.debug("could not sign off from the farm: %s", error.message)

    def _pass_on(self, reason: str, *, own: str) -> None:
        """Log why the farm gives the device no work, once: as that no worker can link for it. Our own reason is known here."""
        if own:
            return
        if reason and reason != self._farm_says:
            log.info("the farm says: %s", reason)
        self._farm_says = reason

    def _register(self, status: Mapping[str, Any]) -> None:
        device_id = self._api.register({**self._device, "ready": status["ready"]})
        if device_id != self.device_id:
            log.info("registered as %s", device_id)
        self.device_id = device_id
        self._registered = True
