"""The broker dies and freezes repeatedly: work continues afterwards, and the API throughout."""

from __future__ import annotations

import signal
import time

import httpx
import pytest
from soak_audit import audit
from soak_farm import SoakFarm, soak_farm

from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.values import Job, Model

# workers, jobs, rounds of each, deaths, freezes, seconds of each freeze
SIZES = {"small": (1, 1, 8, 1, 1, 1.0), "middle": (2, 3, 25, 6, 1, 15.0), "big": (2, 10, 50, 20, 2, 60.0)}
TRIALS = 2


class Visitor:
    """A user of the API while the broker is away."""

    def __init__(self, farm: SoakFarm, model: Model) -> None:
        self._farm = farm
        self._model = model
        self.jobs = 0
        self.longest_sec = 0.0

    def visit(self) -> None:
        """Look at the jobs and ask for one more; the API must do both."""
        with self._farm.client() as client:
            body = {
                "model_id": self._model.id,
                "budget": {"trials": TRIALS},
                "tuner": "random",
                "seed": self.jobs,
            }
            self._timed(client, "GET", "/v1/jobs", None)
            self._timed(client, "POST", "/v1/jobs", body)
            self.jobs += 1

    def _timed(self, client: httpx.Client, method: str, path: str, body: object) -> None:
        began = time.monotonic()
        answer = client.request(method, path, json=body)
        self.longest_sec = max(self.longest_sec, time.monotonic() - began)
        assert answer.is_success, answer.text


@pytest.mark.exhaustive
def test_work_goes_on_when_the_broker_is_back(tmp_path, farm_url, size, rng, report) -> None:
    num_workers, num_jobs, rounds, deaths, freezes, freeze_sec = SIZES[size]
    with soak_farm(
        tmp_path / "farm", farm_url, workers=num_workers, devices=num_workers, reconcile=False
    ) as farm:
        farm.start_api()
        farm.wait_for_api()
        model = farm.ready_model(Scenario(tasks=2, trial_sec=0.02))
        jobs = [farm.submit(model, trials=rounds, seed=seed) for seed in range(num_jobs)]
        visitor = Visitor(farm, model)
        plan = ["die"] * deaths + ["freeze"] * freezes
        rng.shuffle(plan)
        resumed_sec: list[float] = []

        def submit() -> Job:
            return farm.submit(model, trials=rounds, seed=len(jobs))

        for how in plan:
            jobs.extend(farm.see_work(submit))
            if how == "die":
                farm.broker.kill()
                visitor.visit()
                time.sleep(rng.random() * 2.0)
                done = farm.done_steps()
                farm.broker.start()
            else:
                assert farm.broker.process is not None
                farm.broker.process.send_signal(signal.SIGSTOP)
                until = time.monotonic() + freeze_sec
                while time.monotonic() < until:
                    visitor.visit()
                    time.sleep(freeze_sec / 4)
                done = farm.done_steps()
                farm.broker.process.send_signal(signal.SIGCONT)
            # The visitor's requests are still to be done.
            back = time.monotonic()
            farm.wait(lambda done=done: farm.done_steps() > done, "work to go on")
            resumed_sec.append(time.monotonic() - back)
        farm.finish()
        figures = audit(
            farm,
            trials=rounds * len(jobs) + TRIALS * visitor.jobs,
            deaths=deaths,
            freezes=freezes,
            freeze_sec=freeze_sec,
            resumed_after_sec_at_most=round(max(resumed_sec), 1),
            api_answered_within_sec=round(visitor.longest_sec, 2),
        )
        report(figures)
