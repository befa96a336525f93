"""Compose a process: settings in, services out. No other module creates engines, stores and dispatchers."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tunefarm_app.identity.tickets import GatewayWay
from tunefarm_app.runtime.dispatch import CeleryDispatcher, Dispatcher
from tunefarm_app.settings import Settings
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_tuning.core.errors import DeviceLostError, InvariantError, NotFoundError

if TYPE_CHECKING:
    from tunefarm_app.engines.interface import Engine  # the API process has neither numpy nor TVM


_ANSWER_WITHOUT_BROKER_SEC = 0.3
"""How long a request waits for the broker."""


def _process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts that use cases need.

    Attributes:
        engine: Only workers have one.
        owner: Who holds the leases that this process takes.
        draining: Whether this process was told to stop.
    """

    settings: Settings
    uow: UnitOfWork
    blobs: BlobStore
    dispatcher: Dispatcher
    engine: Engine | None = None
    owner: str = field(default_factory=_process_name)
    draining: Callable[[], bool] = lambda: False

    def require_engine(self) -> Engine:
        """Return the engine. Raises `InvariantError` in a process that has none."""
        if self.engine is None:
            raise InvariantError("this process runs no steps: it has no engine")
        return self.engine

    def close(self) -> None:
        """End child processes and connections."""
        if self.engine is not None:
            self.engine.close()
        self.dispatcher.close()
        self.uow.engine.dispose()


def compose(settings: Settings) -> Services:
    """Return the services of a process that runs no steps: the API, an administration command."""
    return Services(
        settings=settings,
        uow=UnitOfWork(make_engine(settings.database_url.get_secret_value())),
        blobs=BlobStore(settings.store_dir),
        dispatcher=CeleryDispatcher(settings),
    )


def for_requests(services: Services) -> Services:
    """Return the same services with a dispatcher for requests, which the caller closes as well.

    A broker that does not answer is given up soon, so that no request waits for it. The reconciler, which has more
    patience, sends lost messages later.
    """
    dispatcher = CeleryDispatcher(services.settings, socket_timeout_sec=_ANSWER_WITHOUT_BROKER_SEC)
    return replace(services, dispatcher=dispatcher)


def compose_worker(settings: Settings, *, draining: Callable[[], bool]) -> Services:
    """Return the services of a process that runs steps: one child of a worker's pool."""
    services = compose(settings)
    return replace(services, engine=_make_engine(settings, services.uow), draining=draining)


def _make_engine(settings: Settings, uow: UnitOfWork) -> Engine:
    if settings.engine == "replay":
        from tunefarm_app.engines.replay import ReplayEngine

        if not settings.replay_sessions:
            return ReplayEngine()
        from tunefarm_app.engines.remote_device import remote_device

        way = gateway_way(settings, uow)
        return ReplayEngine(remote=lambda device: remote_device(device, way))
    from tunefarm_app.engines.tvm import TvmEngine

    return TvmEngine(settings, gateway_way(settings, uow))


def gateway_way(settings: Settings, uow: UnitOfWork) -> GatewayWay | None:
    """Return how workers reach devices over the farm's gateway; None if it has none."""
    if not settings.gateway or settings.gateway_dir is None:
        return None

    def check(device_id: str, fence: int) -> None:
        with uow.read() as repos, suppress(NotFoundError):
            device = repos.devices.get(device_id)
            if device.fence == fence and (device.lease_until or 0.0) >= repos.now():
                return
        raise DeviceLostError("the device was removed, or given to another step", device_id=device_id)

    return GatewayWay(address=settings.gateway, folder=settings.gateway_dir / "worker", check=check)
