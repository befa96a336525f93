"""The worker's Celery application.

The database is the truth and Celery only says when to look at it (ADR 0003), so the broker promises nothing
that leases do not. The settings were chosen by killing processes; each comment says what goes wrong without them.

Nor is the broker believed: whoever has another worker's URL of it can put anything into the queues. What is no message of ours is dropped
with a line in the log, where Celery would end, each worker that it is delivered to, one after the other.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from celery import Celery
from kombu.exceptions import InconsistencyError
from kombu.transport import redis
from redis import exceptions

from tunefarm_app.runtime.dispatch import CALIBRATE, RUN_STEP, make_celery
from tunefarm_app.runtime.step_limits import hard_limit_sec
from tunefarm_app.settings import Settings
from tunefarm_db.values import StepKind

log = structlog.stdlib.get_logger(__name__)

SOCKET_TIMEOUT_SEC = 10.0

_BROKER_ERRORS = (OSError, InconsistencyError, exceptions.RedisError)
"""The broker, and not a message, is at fault."""
_NO_MESSAGE = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading something else than a message fails with."""

_ARGUMENTS: Mapping[str, tuple[type, ...]] = {RUN_STEP: (str,), CALIBRATE: (str, int)}
"""The tasks that there are, and the types of their arguments."""


class _QoS(redis.QoS):  # type: ignore[misc]  # (kombu has no types)
    """Forgets a message even if its acknowledgement could not be sent to the broker.

    kombu's Redis transport tells the broker first, and forgets the message only if that succeeded. If the broker dies at
    that moment, the message counts as unfinished for ever: with one message at a time the worker then asks for no more,
    never notices its lost connection, and stays up idle until it is restarted (seen with kombu 5.7). A forgotten message
    is delivered again at worst, and its step is done by then.
    """

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)
        finally:
            self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        try:
            super().reject(delivery_tag, requeue)
        finally:
            self._quick_ack(delivery_tag)

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Put a message that was not acknowledged back into its queue; drop what is none."""
        try:
            super().restore_by_tag(tag, client=client, leftmost=leftmost)
        except _BROKER_ERRORS:
            raise
        except _NO_MESSAGE as error:
            log.warning("dropped bytes that are not a message", queue="unacked", error=type(error).__name__)
            self._remove_from_indices(tag).execute()


class _Channel(redis.Channel):  # type: ignore[misc]
    """Drops what is no message of ours."""

    QoS = _QoS

    def basic_consume(self, queue: str, *args: Any, **kwargs: Any) -> Any:
        tag = super().basic_consume(queue, *args, **kwargs)
        callbacks = self.connection._callbacks  # noqa: SLF001  (kombu has no other way in)
        callbacks[queue] = self._tolerant(callbacks[queue], queue)
        return tag

    def _tolerant(self, take: Callable[[Any], Any], queue: str) -> Callable[[Any], Any]:
        def take_or_drop(message: Any) -> Any:
            try:
                check_message(message)
            except _NO_MESSAGE as error:
                log.warning("dropped bytes that are not a message", queue=queue, error=type(error).__name__)
                return None
            return take(message)

        return take_or_drop

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except _NO_MESSAGE as error:  # no JSON, or of a type that kombu cannot make
            log.warning("dropped bytes that are not a message", error=type(error).__name__)
            return True


def check_message(message: Any) -> None:
    """Refuse a message that our dispatcher did not send: one can name a step or a device, and nothing else.

    Celery's own messages may ask for more: to run at another time, other tasks afterwards, a compressed body.

    Args:
        message: As it is in the queue, parsed.

    Raises:
        KeyError: If a member is missing.
        TypeError: If a member has another type; also AttributeError.
        ValueError: If a member has another value.
    """
    headers, properties = message["headers"], message["properties"]
    task, limits = headers["task"], headers["timelimit"]
    texts = (headers["id"], properties["delivery_tag"], *_where(properties["delivery_info"]))
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("id, tag and queue are texts")
    if task not in _ARGUMENTS or message["content-type"] != "application/json":
        raise ValueError("not a task of this farm")
    if message["content-encoding"] != "utf-8" or headers.get("compression") is not None:
        raise ValueError("a body that is encoded")
    if headers.get("eta") is not None or headers.get("expires") is not None or headers.get("retries"):
        raise ValueError("for another time")
    if len(limits) != 2 or not all(
        limit is None or (isinstance(limit, int | float) and 0 < limit < math.inf) for limit in limits
    ):
        raise ValueError("no limits of time")
    if properties["body_encoding"] != "base64" or not isinstance(properties.get("priority", 0), int):
        raise ValueError("not the properties of this farm's messages")
    arguments, keywords, then = json.loads(base64.b64decode(message["body"], validate=True))
    if [type(argument) for argument in arguments] != list(_ARGUMENTS[task]) or keywords or any(then.values()):
        raise ValueError("other arguments")


def _where(delivery_info: Any) -> tuple[Any, Any]:
    return delivery_info["exchange"], delivery_info["routing_key"]


@contextmanager
def _mutex(client: Any, name: str, expire: int) -> Iterator[None]:
    """Take turns in putting messages back, as kombu's `Mutex`, but without Lua, which workers need not be able to run in the broker.

    Who takes longer than `expire` may end another one's turn: then both put back, one message at a time in a transaction.
    """
    if not client.set(name, "taken", nx=True, ex=expire):
        raise redis.MutexHeld
    try:
        yield
    finally:
        client.delete(name)


def make_worker_app(settings: Settings) -> Celery:
    """Return the application that `tunefarm_workers.worker` runs. Connects to nothing."""
    redis.Transport.Channel = _Channel
    redis.Mutex = _mutex
    app = make_celery(settings, socket_timeout_sec=SOCKET_TIMEOUT_SEC)
    longest_sec = max(hard_limit_sec(settings, kind) for kind in StepKind)
    app.conf.update(
        include=["tunefarm_workers.steps"],
        # A message is acknowledged when its step is over, also when the child that ran it was killed in between:
        # without the second setting Celery acknowledges, and the step waits for its lease to run out.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        # Whether a failed step is tried again is decided in the database, where attempts are counted.
        task_acks_on_failure=True,
        task_acks_on_timeout=True,
        # A message taken in advance would wait behind a compile while another child is idle.
        worker_prefetch_multiplier=1,
        # xgboost hangs in a forked child, and TVM has threads: children are fresh interpreters.
        worker_pool="prefork",
        worker_pool_start_method="spawn",
        worker_max_tasks_per_child=200,
        # A fresh interpreter may start slowly on a busy machine. Celery's four seconds kill it before it is up, then the
        # next one, and so on for ever: each start makes the machine busier.
        worker_proc_alive_timeout=120.0,
        # Defaults; every message has the limits of its kind of step.
        task_time_limit=longest_sec,
        task_soft_time_limit=longest_sec - 10,
        # After an outage of the broker the lease decides who continues, not the connection.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_soft_shutdown_timeout=60,
        worker_enable_soft_shutdown_on_idle=True,
        # Nobody listens, and a client of the broker must not be able to control workers.
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app
