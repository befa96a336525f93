"""Keep the lease of a device outside a step: a thread renews the lease, and cancels the work if the lease is lost."""

from __future__ import annotations

import threading
from typing import Self

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import DeviceLease
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import TransientError

log = structlog.stdlib.get_logger(__name__)


class DeviceLeaseKeeper:
    """Keeps a device's lease alive; use it in a ``with``. `cancellation` is cancelled when the work must stop.

    The work must stop when the lease was lost (the device was removed, say), or the worker was told to stop. While the
    database is away the lease runs out, and the fencing token rejects late writes.
    """

    def __init__(self, services: Services, lease: DeviceLease) -> None:
        self.cancellation = Cancellation()
        self._services = services
        self._lease = lease
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"keep-{lease.device.id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        lease_sec = self._services.settings.lease_sec
        while not self._ended.wait(min(1.0, lease_sec / 4)):
            if self._services.draining() or not self._renew(lease_sec):
                self.cancellation.cancel()
                return

    def _renew(self, lease_sec: float) -> bool:
        try:
            with self._services.uow.write() as repos:
                return repos.devices.renew_lease(self._lease.device.id, self._lease.fence, lease_sec)
        except TransientError as error:
            log.warning("device's lease not renewed", device_id=self._lease.device.id, error=error.message)
            return True
