"""A broker that dies between a message and its acknowledgement."""

from __future__ import annotations

import logging

import pytest
from waiting import wait_until

from tunefarm_app.runtime.dispatch import queue_of
from tunefarm_db.values import StepKind
from tunefarm_workers.celery_app import make_worker_app


@pytest.mark.parametrize("answer", ["ack_log_error", "reject_log_error"])
def test_a_consumer_asks_for_the_next_message(settings, broker, answer: str) -> None:
    app = make_worker_app(settings)
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        channel.basic_qos(0, 1, False)
        queue = app.amqp.queues[queue_of(StepKind.TUNE)](channel)
        queue.declare()
        app.amqp.Producer(channel).publish({}, routing_key=queue.routing_key, exchange=queue.exchange)
        message = wait_until(queue.get, "the message")
        assert not channel.qos.can_consume()
        broker.kill()
        getattr(message, answer)(logging.getLogger(__name__), connection.connection_errors)
        assert channel.qos.can_consume()
        broker.start()
