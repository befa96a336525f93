"""The stages of an import that begin at once."""

from __future__ import annotations

import threading

import pytest

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.importing import _both
from tunefarm_tuning.process import ChildClosed

LONG_SEC = 60.0


class Stage:
    """A stage that lasts until it is closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.begun = threading.Event()

    def close(self) -> None:
        self.closed.set()

    def __call__(self, *, cancellation: Cancellation) -> str:
        with cancellation.attach(self):
            self.begun.set()
            assert self.closed.wait(LONG_SEC)
        raise ChildClosed("the stage has been closed")


def test_both_run_at_once() -> None:
    meeting = threading.Barrier(2, timeout=LONG_SEC)

    def first() -> str:
        meeting.wait()
        return "first"

    def second(*, cancellation: Cancellation) -> str:
        meeting.wait()
        return "second"

    assert _both(first, second, None, at_once=True) == ("first", "second")


def test_the_second_waits_for_the_first_if_they_may_not() -> None:
    done: list[str] = []
    _both(lambda: done.append("first"), lambda *, cancellation: done.append("second"), None, at_once=False)
    assert done == ["first", "second"]


def test_an_error_of_the_first_ends_the_second_and_is_the_one_that_is_told() -> None:
    second = Stage()

    def first() -> None:
        assert second.begun.wait(LONG_SEC)
        raise InvalidModelError("ONNX Runtime refuses it", code="invalid-onnx")

    with pytest.raises(InvalidModelError, match="refuses"):
        _both(first, second, None, at_once=True)
    assert second.closed.is_set()


def test_a_cancellation_ends_the_second() -> None:
    second, cancellation = Stage(), Cancellation()

    def first() -> None:
        assert second.begun.wait(LONG_SEC)
        cancellation.cancel()

    with pytest.raises(ChildClosed):
        _both(first, second, cancellation, at_once=True)
    assert second.closed.is_set()
