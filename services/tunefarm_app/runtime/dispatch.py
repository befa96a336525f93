"""Send step ids to the workers through the broker. A message can be lost: the database holds the truth.

A message holds a step's id and nothing else, and is sent after the commit that made the step due. The reconciler sends
a lost message again; a message that comes twice finds the step taken. So a broker that is down costs time but no work,
and sending never raises.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import Any, Protocol

import structlog
from celery import Celery
from kombu import Queue
from kombu.exceptions import OperationalError

from tunefarm_app.runtime.step_limits import hard_limit_sec, soft_limit_sec, visibility_timeout_sec
from tunefarm_app.settings import Settings
from tunefarm_db.values import StepKind

log = structlog.stdlib.get_logger(__name__)

RUN_STEP = "tunefarm.run_step"
"""Name of the Celery task that runs a step; its only argument is the step's id."""

CALIBRATE = "tunefarm.calibrate"
"""Name of the Celery task that calibrates a device; its arguments are the device's id and fence."""

QUEUES = ("import", "tune", "compile", "draft")
KEY_PREFIX = "tunefarm:"
"""Prefix of every key in the broker, for a Redis that is shared with others."""

_QUEUE_OF: dict[StepKind, str] = {
    StepKind.IMPORT: "import",
    StepKind.EXTRACT: "import",
    StepKind.TUNE: "tune",
    StepKind.CONFIRM: "tune",
    StepKind.COMPILE: "compile",
    StepKind.SOURCE: "import",
    StepKind.SAMPLES: "import",
    StepKind.MEASURE: "compile",
    StepKind.DRAFT: "draft",  # of its own: what waits there ends no turn, and no draft gives way to it
}


class Dispatcher(Protocol):
    """Tells the workers that a step is due.

    Failure: never raises; False means that the message was not sent, and that the reconciler will send it.
    Concurrency: any thread.
    """

    def send(self, step_id: str, kind: StepKind) -> bool: ...

    def send_calibration(self, device_id: str, fence: int) -> bool:
        """Ask for a calibration of a device; it is dropped if the device was leased again since this fence."""
        ...

    def queue_length(self, kind: StepKind) -> int | None:
        """Return how many messages wait for a worker; None if the broker does not answer."""
        ...

    def ping(self) -> bool:
        """Return whether the broker answers."""
        ...

    def close(self) -> None: ...


def queue_of(kind: StepKind) -> str:
    """Return the queue that steps of this kind go to."""
    return _QUEUE_OF[kind]


def make_celery(settings: Settings, *, socket_timeout_sec: float) -> Celery:
    """Return the Celery application with the settings that senders and workers share. Connects to nothing."""
    app = Celery("tunefarm", set_as_current=False)
    visibility_timeout = visibility_timeout_sec(settings)
    app.conf.update(
        broker_url=settings.broker_url.get_secret_value(),
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_queues=[Queue(name) for name in QUEUES],
        task_default_queue="import",
        task_create_missing_queues=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_acquire_timeout=socket_timeout_sec,
        visibility_timeout=visibility_timeout,
        broker_transport_options={
            "visibility_timeout": visibility_timeout,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_timeout": socket_timeout_sec,
            "socket_connect_timeout": min(5.0, socket_timeout_sec),
            "socket_keepalive": True,
            "health_check_interval": 10,
            "retry_on_timeout": True,
            "global_keyprefix": KEY_PREFIX,
        },
    )
    return app


class CeleryDispatcher:
    """Sends steps through Celery.

    A broker that does not answer costs a caller one short time-out; for a few seconds after that every call gives up
    at once, so that neither requests nor the reconciler queue up behind a dead socket.
    """

    def __init__(self, settings: Settings, *, socket_timeout_sec: float = 1.0, rest_sec: float = 5.0) -> None:
        self._settings = settings
        self._app = make_celery(settings, socket_timeout_sec=socket_timeout_sec)
        self._app.conf.broker_transport_options = {
            **self._app.conf.broker_transport_options,
            "retry_on_timeout": False,
            # otherwise kombu retries without end
            "max_retries": 0,
            "interval_start": 0,
            "connect_retries_timeout": socket_timeout_sec,
        }
        self._rest_sec = rest_sec
        self._resting_until = 0.0
        self._lock = Lock()

    def send(self, step_id: str, kind: StepKind) -> bool:
        return self._send(RUN_STEP, [step_id], kind, "step not sent", step_id=step_id)

    def send_calibration(self, device_id: str, fence: int) -> bool:
        return self._send(
            CALIBRATE, [device_id, fence], StepKind.TUNE, "calibration not sent", device_id=device_id
        )

    def _send(self, task: str, args: list[Any], kind: StepKind, complaint: str, **fields: Any) -> bool:
        """Send a message to the queue of this kind of step, under its time limits."""

        def send() -> object:
            return self._app.send_task(
                task,
                args=args,
                queue=queue_of(kind),
                retry=False,
                ignore_result=True,
                time_limit=hard_limit_sec(self._settings, kind),
                soft_time_limit=soft_limit_sec(self._settings, kind),
            )

        return self._guarded(complaint, send, **fields) is not None

    def queue_length(self, kind: StepKind) -> int | None:
        def count() -> int:
            with self._app.connection_for_write() as connection:
                return int(connection.default_channel.queue_declare(queue_of(kind)).message_count)

        waiting: int | None = self._guarded("queue not counted", count)
        return waiting

    def ping(self) -> bool:
        return self.queue_length(StepKind.IMPORT) is not None

    def close(self) -> None:
        self._app.close()

    def _guarded(self, complaint: str, call: Any, **fields: Any) -> Any:
        with self._lock:
            if time.monotonic() < self._resting_until:
                return None
        try:
            return call()
        except (OperationalError, OSError, *self._broker_errors()) as error:
            with self._lock:
                self._resting_until = time.monotonic() + self._rest_sec
            log.warning(complaint, error=type(error).__name__, **fields)
            return None

    def _broker_errors(self) -> tuple[type[Exception], ...]:
        connection = self._app.connection_for_write()
        return tuple(connection.connection_errors) + tuple(connection.channel_errors)
