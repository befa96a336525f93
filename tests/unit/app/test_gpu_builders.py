"""A worker without CUDA's compiler passes on what it cannot build; where none has it, the job says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tunefarm_app.replay_engine import ReplayEngine, Scenario
from tunefarm_app.run_step import run_step, run_steps
from tunefarm_db.job_state import JobState
from tunefarm_db.values import DeviceState, StepState
from tunefarm_tuning.errors import InvalidInputError
from tunefarm_tuning.target import Target

CUDA = {"kind": "cuda", "arch": "sm_90"}


class WithoutCompiler(ReplayEngine):
    """Of a machine that lacks ``nvcc``, or has one that says `code`."""

    code = "no-cuda-compiler"

    def check_can_build(self, target: Target) -> None:
        if target.kind == "cuda":
            raise InvalidInputError("there is no nvcc here", code=self.code)


@pytest.fixture
def lacking(farm):
    """The farm as a worker without the compiler sees it."""
    return farm.with_engine(WithoutCompiler())


def submitted(farm):
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device(target=CUDA, device_model="replay-gpu")
    return farm.submit(model)


def test_each_of_its_steps_goes_to_a_worker_that_can(farm, lacking) -> None:
    farm.inbox.gpu_builder = True
    job = submitted(farm)
    met = []
    while farm.inbox.messages:  # each comes first to the one that cannot
        step_id = farm.inbox.messages.pop(0)
        run_steps(step_id, lacking.services)
        assert farm.inbox.for_gpu_builder.pop() == step_id
        with farm.services.uow.read() as repos:
            step = repos.steps.get(step_id)
            assert (step.state, step.attempts, step.error) == (StepState.READY, 0, None)
            assert repos.steps.due(resend_after_sec=60.0) == ()
            met.append(step.kind.value)
        farm.inbox.messages += [following.id for following in run_step(step_id, farm.services)]
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert {"extract", "tune", "compile"} <= set(met)


def test_no_more_messages_wait_than_are_of_use(farm, lacking) -> None:
    farm.inbox.gpu_builder = True
    submitted(farm)
    (step_id,) = farm.inbox.messages
    for _ in range(150):
        run_steps(step_id, lacking.services)
    assert len(farm.inbox.for_gpu_builder) == 100


def test_where_none_can_the_job_fails_at_once(farm, lacking) -> None:
    job = submitted(farm)
    lacking.run()
    failed = farm.job(job.id)
    assert failed.state is JobState.FAILED
    assert failed.error["code"] == "no-cuda-compiler"
    assert "no worker of this farm has CUDA's compiler" in failed.error["message"]
    assert farm.inbox.for_gpu_builder == []


def test_one_whose_compiler_does_not_know_the_gpu_says_so(farm) -> None:
    farm.inbox.gpu_builder = True
    engine = WithoutCompiler()
    engine.code = "cuda-compiler-unfit"
    job = submitted(farm)
    farm.with_engine(engine).run()
    assert farm.job(job.id).error["code"] == "cuda-compiler-unfit"


def test_jobs_for_cpus_are_everybodys(farm, lacking) -> None:
    farm.inbox.gpu_builder = True
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    job = farm.submit(model)
    lacking.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED


def test_calibrations_are_passed_on_as_well(farm, lacking) -> None:
    farm = replace(farm, services=farm.with_settings(calibrate_every_sec=600.0).services)
    lacking = farm.with_engine(WithoutCompiler())
    farm.inbox.gpu_builder = True
    device = farm.newcomer(target=CUDA, device_model="replay-gpu")
    lacking.calibrate()
    assert farm.inbox.for_gpu_builder == [device.id]
    assert farm.device(device.id).lease_owner is None
    assert farm.device(device.id).state is not DeviceState.QUARANTINED
