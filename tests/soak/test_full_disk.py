"""A full disk under database, store, temporary files and logs: nothing is lost, and work continues with new room."""

from __future__ import annotations

import time

import httpx
import pytest
from small_disk import SmallDisk, small_disk
from soak_audit import audit
from soak_farm import SoakFarm, soak_farm

from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.values import Job

# workers, jobs, rounds of each, times that the disk is full, seconds of each
SIZES = {"small": (1, 1, 8, 1, 3.0), "middle": (2, 3, 25, 5, 8.0), "big": (2, 10, 50, 20, 15.0)}
DISK_BYTES = 48 << 20
UPLOAD_BYTES = 4 << 20
TRIALS = 2


class Visitor:
    """A user who uploads models and requests jobs all the time."""

    def __init__(self, farm: SoakFarm, model_id: str) -> None:
        self._farm = farm
        self._model_id = model_id
        self.codes: dict[str, int] = {}
        self.jobs = 0
        self.uploads = 0

    def upload(self) -> httpx.Response:
        """Upload a file that is new."""
        self.uploads += 1
        scenario = Scenario(tasks=1, seed=self.uploads).to_bytes()
        content = scenario + b" " * (UPLOAD_BYTES - len(scenario))
        with self._farm.client() as client:
            answer = client.post(
                "/v1/models",
                params={"name": "net.onnx"},
                content=content,
                headers={"Content-Type": "application/octet-stream"},
            )
        self._note(answer)
        return answer

    def ask(self) -> None:
        """Look at the jobs, and ask for one more."""
        body = {
            "model_id": self._model_id,
            "budget": {"trials": TRIALS},
            "tuner": "random",
            "seed": self.jobs,
        }
        with self._farm.client() as client:
            self._note(client.get("/v1/jobs"))
            answer = client.post("/v1/jobs", json=body)
        self._note(answer)
        self.jobs += answer.is_success

    def _note(self, answer: httpx.Response) -> None:
        """Count the failures; each must be a problem document that does not blame the user."""
        if answer.is_success:
            return
        assert answer.headers["Content-Type"] == "application/problem+json", answer.text
        problem = answer.json()
        assert answer.status_code in (503, 507), problem
        self.codes[problem["code"]] = self.codes.get(problem["code"], 0) + 1


@pytest.mark.exhaustive
def test_work_goes_on_when_there_is_room_again(tmp_path, size, rng, report) -> None:
    num_workers, num_jobs, rounds, times, full_sec = SIZES[size]
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        if disk is None:
            pytest.skip("needs the right to mount a small file system")
        url = f"sqlite:///{disk.path / 'tunefarm.db'}"
        with soak_farm(
            disk.path / "farm",
            url,
            workers=num_workers,
            devices=num_workers,
            reconcile=False,
            max_step_attempts=3,
        ) as farm:
            farm.start_api()
            farm.wait_for_api()
            model = farm.ready_model(Scenario(tasks=2, trial_sec=0.02))
            jobs = [farm.submit(model, trials=rounds, seed=seed) for seed in range(num_jobs)]
            visitor = Visitor(farm, model.id)

            def submit() -> Job:
                return farm.submit(model, trials=rounds, seed=len(jobs))

            for _ in range(times):
                jobs.extend(farm.see_work(submit))
                time.sleep(rng.random())
                fill_up(disk, visitor, full_sec)
                done = farm.done_steps()
                disk.make_room()
                farm.wait(lambda: visitor.upload().is_success, "an upload that is taken")
                farm.wait(lambda done=done: farm.done_steps() > done, "work to go on")
                with farm.client() as client:
                    for listed in client.get("/v1/models").json()["items"]:
                        if listed["id"] != model.id and listed["state"] != "importing":
                            client.delete(f"/v1/models/{listed['id']}")
            farm.finish()
            assert farm.count("jobs") == len(jobs) + visitor.jobs
            figures = audit(
                farm,
                trials=rounds * len(jobs) + TRIALS * visitor.jobs,
                times=times,
                full_sec=full_sec,
                refused=visitor.codes,
                uploads=visitor.uploads,
            )
            report(figures)


def fill_up(disk: SmallDisk, visitor: Visitor, full_sec: float) -> None:
    """Have no room for some seconds, and use the farm meanwhile."""
    until = time.monotonic() + full_sec
    refused = 0
    while time.monotonic() < until or not refused:
        disk.fill()
        refused += visitor.upload().status_code == 507
        visitor.ask()
        time.sleep(0.2)
