"""Every log line has the id of its job, device or trial."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.runtime.logs import OF_A_STEP
from tunefarm_app.steps.run import run_step
from tunefarm_tuning.core.errors import DeviceLostError


@pytest.fixture
def lines(farm: Any) -> Any:
    """The lines of a whole job, by the step that wrote them."""

    def run(scenario: Scenario, **terms: Any) -> list[Any]:
        device = farm.add_device()
        model = farm.upload(scenario)
        with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as seen:
            farm.run()
            job = farm.submit(model, **terms)
            farm.run()
        assert farm.job(job.id).state.is_finished
        return [job, device, [line for line in seen if "step_id" in line and "step" in line]]

    return run


def test_every_line_of_a_step_says_what_it_is_about(farm: Any, lines: Any) -> None:
    job, device, seen = lines(Scenario(tasks=2, failing=0.2), trials=24)
    assert {line["step"] for line in seen} >= {"import", "extract", "tune", "compile"}
    of_job = [line for line in seen if line["step"] != "import"]
    assert all(line["job_id"] == job.id for line in of_job)
    for line in of_job:
        if line["step"] in ("tune", "compile") and line["event"] in ("trial done", "round done", "step done"):
            assert (line["device_id"], line["device"]) == (device.id, device.name), line
    rounds = [line for line in seen if line["event"] == "round done"]
    trials = {trial.id: trial for trial in farm.trials(job.id)}
    done = [line for line in seen if line["event"] == "trial done"]
    assert {line["trial_id"] for line in done} == set(trials)
    assert {line["first_trial_id"] for line in rounds} <= set(trials)
    with farm.services.uow.read() as repos:
        keys = {task.position: task.workload_key for task in repos.jobs.tasks(job.id)}
    for line in done:
        trial = trials[line["trial_id"]]
        assert (line["task"], line["workload_key"]) == (trial.position, keys[trial.position])
        assert (line["outcome"], line["round"]) == (trial.outcome, trial.round)
    assert {line["log_level"] for line in done} == {"debug"}, "a candidate's failure is nobody's alarm"


def test_the_next_step_of_the_process_begins_with_none_of_it(farm: Any) -> None:
    class Losing(ReplayEngine):
        def measuring(self, *_: Any, **__: Any) -> Any:
            raise DeviceLostError("it is gone")

    farm.add_device()
    model = farm.upload(Scenario(tasks=1))
    farm.run()
    job = farm.submit(model, trials=8)
    farm.run(steps=1)
    (step_id,) = farm.inbox.messages
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as seen:
        run_step(step_id, farm.with_engine(Losing()).services)
    (failed,) = [line for line in seen if line["event"] == "step failed"]
    assert failed["job_id"] == job.id
    assert failed["task"] == 0
    assert failed["device_id"]
    assert not set(structlog.contextvars.get_contextvars()) & {*OF_A_STEP, "job_id", "step_id"}


def test_the_agents_lines_are_json_with_its_ids() -> None:
    code = (
        "import logging\n"
        "from tunefarm_workers.device.json_log import log_as_json\n"
        "fields = {'device': 'node-1'}\n"
        "log_as_json(fields)\n"
        "log = logging.getLogger('tunefarm.device')\n"
        "log.info('hello %s', 'you\\n{')\n"
        "fields['device_id'] = 'dev_1'\n"
        "try:\n    1 / 0\n"
        "except ZeroDivisionError:\n    log.exception('it broke')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = [json.loads(line) for line in done.stderr.splitlines()]
    assert (first["event"], first["device"], first["role"]) == ("hello you\n{", "node-1", "device")
    assert first["level"] == "info"
    assert "device_id" not in first
    assert second["device_id"] == "dev_1"
    assert "ZeroDivisionError" in second["exception"]
