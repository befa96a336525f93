"""The worker's Celery application.

The database is the truth and Celery only says when to look at it (ADR 0003), so the broker promises nothing
that leases do not. The settings were chosen by killing processes; each comment says what goes wrong without them.
"""

from __future__ import annotations

from celery import Celery
from kombu.transport import redis

from tunefarm_app.runtime.dispatch import make_celery
from tunefarm_app.runtime.step_limits import hard_limit_sec
from tunefarm_app.settings import Settings
from tunefarm_db.values import StepKind

SOCKET_TIMEOUT_SEC = 10.0


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


def make_worker_app(settings: Settings) -> Celery:
    """Return the application that `tunefarm_workers.worker` runs. Connects to nothing."""
    redis.Channel.QoS = _QoS
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
