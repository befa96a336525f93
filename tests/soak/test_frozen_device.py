"""A real device freezes repeatedly in the middle of a measurement."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from real_farm import RealFarm, network, real_farm
from soak_audit import audit
from waiting import gone

from tunefarm_db.states.device import DeviceState
from tunefarm_db.values import Job
from tunefarm_tuning.measure.interfaces import TimingOption

pytestmark = pytest.mark.exhaustive

# freezes, trials of a job
SIZES = {"small": (1, 12), "middle": (6, 40), "big": (20, 100)}
ROUND_SIZE = 4
USABLE = (DeviceState.ONLINE, DeviceState.LEASED)


def freeze(real: RealFarm, number: int, keep_busy: Callable[[], None]) -> tuple[str, float]:
    """Freeze the measuring process, or also the server above it; return the step and the time."""
    while True:
        keep_busy()
        step, session = real.measuring(), real.session()
        if step is None or session is None:
            time.sleep(0.02)
            continue
        victims = [session, real.server()] if number % 2 else [session]
        try:
            for victim in victims:
                victim.suspend()
        except psutil.NoSuchProcess:
            continue
        began = time.monotonic()
        if real.measuring() == step and not gone(session.pid):
            return step.id, began
        for victim in victims:  # it had just ended
            with suppress(psutil.NoSuchProcess):
                victim.resume()


def test_a_job_gets_over_frozen_devices(
    tmp_path: Path, size: str, rng: random.Random, report: Callable[..., None]
) -> None:
    freezes, trials = SIZES[size]
    with real_farm(tmp_path, lease_sec=10.0, max_step_attempts=3) as real:
        farm = real.farm
        model = farm.ready_model(network())
        jobs: list[Job] = []

        def submit() -> Job:
            return farm.submit(model, trials=trials, seed=len(jobs), round_size=ROUND_SIZE)

        def keep_busy() -> None:
            if not farm.open_jobs():
                jobs.append(submit())

        ended_sec: list[float] = []
        usable_sec: list[float] = []
        for number in range(freezes):
            jobs.extend(farm.see_work(submit))
            time.sleep(rng.random())
            step_id, began = freeze(real, number, keep_busy)
            fence = farm.step(step_id).fence
            farm.wait(
                lambda step_id=step_id, fence=fence: (
                    (now := farm.step(step_id)).fence != fence or now.lease_owner is None
                ),
                "the end of the step",
            )
            ended_sec.append(time.monotonic() - began)
            farm.wait(lambda: real.device().state in USABLE, "the device to be usable")
            usable_sec.append(time.monotonic() - began)
        farm.finish()
        real.leave()
        figures = audit(
            farm,
            trials=trials * len(jobs),
            freezes=freezes,
            candidate_timeout_sec=TimingOption().timeout_sec,
            step_ended_within_sec=round(max(ended_sec), 1),
            usable_within_sec=round(max(usable_sec), 1),
            outcomes=dict(farm.rows("SELECT outcome, count(*) FROM trials GROUP BY outcome")),
        )
        report(figures)
