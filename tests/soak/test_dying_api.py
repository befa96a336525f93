"""The API dies at every point of creating a job, under requests: each accepted request has one job."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from failing_api import POINTS
from soak_audit import audit
from soak_farm import SoakFarm, soak_farm

from tunefarm_app.engines.scenario import Scenario

pytestmark = pytest.mark.exhaustive

# clients, deaths at each point
SIZES = {"small": (4, 1), "middle": (6, 4), "big": (10, 25)}
MOST_PASSES = 4
TRIALS = 2


def ask(client: httpx.Client, model_id: str, key: str, number: int) -> httpx.Response:
    body = {"model_id": model_id, "budget": {"trials": TRIALS}, "tuner": "random", "seed": number}
    return client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})


def ask_on(farm: SoakFarm, model_id: str, name: int, enough: threading.Event) -> dict[str, str]:
    """Request jobs one after the other, each until it is accepted; return the ids by key."""
    accepted: dict[str, str] = {}
    with farm.client() as client:
        while not enough.is_set():
            key = f"{name}-{len(accepted)}"
            while True:
                try:
                    answer = ask(client, model_id, key, len(accepted))
                except httpx.TransportError:
                    enough.wait(0.1)  # it is down
                    continue
                assert answer.status_code in (200, 201), answer.text
                accepted[key] = answer.json()["id"]
                break
    return accepted


def test_every_accepted_request_has_exactly_one_job(
    tmp_path, farm_url, size, rng: random.Random, report
) -> None:
    num_clients, deaths_each = SIZES[size]
    with soak_farm(tmp_path / "farm", farm_url, workers=1, devices=1, reconcile=False) as farm:
        farm.start_api()
        farm.wait_for_api()
        model = farm.ready_model(Scenario(tasks=1))
        assert farm.api is not None
        farm.api.kill()
        farm.api.wait()
        enough = threading.Event()
        with ThreadPoolExecutor(num_clients) as pool:
            asking = [pool.submit(ask_on, farm, model.id, name, enough) for name in range(num_clients)]
            try:
                for point in POINTS * deaths_each:
                    farm.start_api(f"{point}:{rng.randrange(MOST_PASSES)}")
                    farm.wait(farm.api_ended, f"the API to die at {point}")
                farm.start_api()
                farm.wait_for_api()
            finally:
                enough.set()
            accepted = {key: job_id for future in asking for key, job_id in future.result().items()}
        with farm.client() as client:
            for key, job_id in accepted.items():  # whoever asks again is told the same
                answer = ask(client, model.id, key, int(key.partition("-")[2]))
                assert (answer.status_code, answer.json()["id"]) == (200, job_id)
        jobs = dict(farm.rows("SELECT idempotency_key, id FROM jobs"))
        assert jobs == accepted
        farm.finish()
        report(audit(farm, trials=TRIALS * len(jobs), deaths=len(POINTS) * deaths_each, clients=num_clients))
