"""A worker whose broker dies at the moment of an acknowledgement.

kombu's Redis transport tells the broker first, and forgets the message only if that went well. If it fails, the error is
logged and the message counts as unfinished for ever. With one message at a time the worker asks for nothing more then,
and having asked for nothing it does not notice either that its connection is gone: it stays up, idle, until somebody
restarts it. (Seen with kombu 5.7.)
"""

from __future__ import annotations

from kombu.transport import redis


class _QoS(redis.QoS):  # type: ignore[misc]  # (kombu has no types)
    """Forgets a message also where the broker could not be told: it is delivered again at worst, and its step is done."""

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


def forget_what_cannot_be_acknowledged() -> None:
    """Have this process's consumers go on after an acknowledgement that failed."""
    redis.Channel.QoS = _QoS
