"""Waiting until a process is idle, so that its threads do not disturb a timing; whether other work disturbed one."""

from __future__ import annotations

import itertools
import threading

import pytest

from tunefarm_tuning.core import latency
from tunefarm_tuning.core.latency import Disturbance, Latency, is_quiet, wait_until_idle


def test_it_waits_until_processor_time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = itertools.chain([0.0, 1.0, 1.0, 2.0, 2.0], itertools.repeat(2.0))
    looks: list[float] = []
    monkeypatch.setattr(latency.time, "process_time", lambda: next(spent))
    monkeypatch.setattr(latency.time, "sleep", looks.append)
    monkeypatch.setattr(latency.time, "monotonic", lambda: 0.02 * len(looks))
    wait_until_idle()
    assert len(looks) == 3, "busy in two looks, at rest in the third"


def test_a_process_that_never_rests_is_not_waited_for_without_end() -> None:
    stop = threading.Event()
    busy = threading.Thread(target=lambda: all(not stop.is_set() for _ in itertools.count()))
    busy.start()
    try:
        wait_until_idle(0.1)
        assert busy.is_alive()
    finally:
        stop.set()
        busy.join()


def test_nobody_knows_whether_an_unwatched_device_was_quiet() -> None:
    def slowed(others_cores: float | None = None, slowdown: float = 1.0) -> Latency:
        disturbance = Disturbance(blocks=1, others_cores=others_cores, slowdown=slowdown)
        return Latency(samples_sec=(1.0,), threads=1, disturbance=disturbance)

    quiet, unwatched = slowed(others_cores=0.1, slowdown=1.05), slowed()
    assert is_quiet([quiet, quiet]) is True
    assert is_quiet([quiet, slowed(others_cores=0.5, slowdown=1.2)]) is False
    assert is_quiet([quiet, unwatched]) is None
    assert is_quiet([Latency(samples_sec=(1.0,), threads=1)]) is None
    assert is_quiet([unwatched, slowed(slowdown=1.5)]) is False, "its yardstick loop showed it"
