"""Workers are killed during their rounds: their main processes, or the children that measure."""

from __future__ import annotations

import os
import signal
import time

import pytest
from soak_audit import audit
from soak_farm import soak_farm
from waiting import gone

from tunefarm_app.engines.scenario import Scenario

pytestmark = pytest.mark.exhaustive

# workers, devices of one pool, jobs at once, rounds of each, kills
SIZES = {"small": (2, 2, 2, 10, 2), "middle": (3, 4, 3, 100, 30), "big": (4, 4, 3, 1700, 200)}
MAIN_SHARE = 0.3
PAUSE_SEC = 0.3


def test_every_job_finishes_and_nothing_is_recorded_twice(tmp_path, farm_url, size, rng, report) -> None:
    num_workers, num_devices, num_jobs, rounds, kills_asked = SIZES[size]
    with soak_farm(tmp_path / "farm", farm_url, workers=num_workers, devices=num_devices) as farm:
        model = farm.ready_model(Scenario(tasks=2, trial_sec=0.02))
        jobs = [farm.submit(model, trials=rounds, seed=seed) for seed in range(num_jobs)]
        kills = 0
        while farm.open_jobs() or kills < kills_asked:
            if not farm.open_jobs():
                jobs.append(farm.submit(model, trials=rounds, seed=len(jobs)))
            # The kills are spread over all of the work. Only who works is killed: workers that die while they start would
            # never get anywhere.
            due = kills < kills_asked and farm.done_steps() * kills_asked >= kills * rounds * num_jobs
            victim = farm.at_work(rng) if due else None
            if victim is None:
                time.sleep(PAUSE_SEC)
                continue
            worker, _, pid = victim
            time.sleep(rng.random() * PAUSE_SEC)
            if gone(pid):
                continue
            if rng.random() < MAIN_SHARE:
                worker.kill()
                farm.start_worker()
            else:
                os.kill(pid, signal.SIGKILL)
            kills += 1
        farm.finish()
        report(audit(farm, trials=rounds * len(jobs), kills=kills, workers=num_workers))
