"""A farm with a remote NVIDIA GPU, without one: all of it is real but the driver's answers and the sessions on the device.

The driver's answers are recorded (`NVML_ANSWERS`); the agent, its RPC server, the API, the broker and the Celery worker are real processes. The
config space is that of a product of float16 for sm_90, as its builder makes it. The device dials the farm's gateway; for each calibration and each batch
the worker opens a session in it under the device's lease, with a ticket, in which it asks the GPU for its state. Then the shipped replay runner answers
in the kernels' place, and the replay engine's artifact says that it is simulated. What only a GPU can show: docs/gpu.md.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gateway_process import GatewayProcess
from nvml_answers import Driver, uuid
from real_farm import RealFarm, real_farm
from waiting import wait_until

from tunefarm.client import Client
from tunefarm.client.errors import ClientError
from tunefarm_app.engines.recorded_tasks import RecordedTask
from tunefarm_app.engines.replay import TOOLCHAIN
from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.values import DeviceState
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.space.design_space import DesignSpace
from tunefarm_tuning.workload.task import TuningTask

pytest.importorskip("tvm")

TRIALS = 24
TASK = sample_task("matmul", n=256, dtype="float16", target="cuda/sm_90")


@pytest.fixture(scope="module")
def space() -> ConfigSpace:
    """The space of a product for tensor cores and CUDA cores; neither a GPU nor `nvcc` is needed."""
    return DesignSpace(module_from_text(TASK.workload.ir), TASK.target).config_space


def recorded(task: TuningTask, space: ConfigSpace) -> RecordedTask:
    """Return measurements of some configs; what else a search proposes gets one of theirs."""
    rows = space.sample_rows(np.random.default_rng(0), 48)
    records = [
        TuningRecord(
            workload_key=task.workload.key,
            target_key=task.target.key,
            device_model="recorded",
            toolchain=TOOLCHAIN,
            space_key=space.key,
            config=config,
            outcome=Outcome.RUN_CRASH if number % 12 == 5 else Outcome.OK,
            samples_sec=() if number % 12 == 5 else (1e-5 * (1 + zlib.crc32(config.key.encode()) % 97),) * 3,
            build_sec=0.02,
            measured_at=0.0,
            extra={"run_sec": 0.01},
        )
        for number, config in enumerate(dict.fromkeys(space.configs(rows)))
    ]
    return RecordedTask.of(task, space, records)


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    driver = Driver(tmp_path / "nvml.json")
    driver.has("H100")
    return driver


@pytest.fixture
def real(tmp_path: Path, driver: Driver) -> Iterator[RealFarm]:
    """A farm whose device is the agent of a machine with one H100."""
    environment = {ANSWERS: str(driver.path)}
    with (
        closing(GatewayProcess(tmp_path / "keys")) as gateway,
        real_farm(
            tmp_path,
            environment=environment,
            options=("--target=cuda",),
            gateway=gateway,
            engine="replay",
            replay_sessions=True,
        ) as real,
    ):
        yield real


@pytest.fixture
def client(real: RealFarm) -> Iterator[Client]:
    with Client(real.farm.api_url, real.farm.api_key) as client:
        yield client


def test_a_job_goes_through_a_farm_with_a_gpu(
    real: RealFarm, client: Client, driver: Driver, space: ConfigSpace, tmp_path: Path
) -> None:
    network = tmp_path / "net.onnx"
    network.write_bytes(Scenario(recorded=(recorded(TASK, space),)).to_bytes())
    wait_until(lambda: real.device().state is DeviceState.ONLINE, "the GPU to be calibrated by the worker")
    device = real.device()
    assert (device.target["kind"], device.target["arch"]) == ("cuda", "sm_90")
    assert [gpu["uuid"] for gpu in device.info["gpus"]] == [uuid(0)]
    assert device.by_gateway
    calibrated = device.fence
    assert calibrated > 0, "it was calibrated under a lease"
    sessions = real.agent.work_dir / "sessions"  # each has a folder in it while it lasts
    before = sessions.stat().st_mtime_ns

    model = client.models.upload(network)
    client.models.wait(model.id)
    with pytest.raises(ClientError) as refused:
        client.jobs.create(model.id, trials=TRIALS, device_key="test", target="cuda/sm_80")
    assert refused.value.code == "incompatible-target"

    # A stranger computes on the GPU: the job waits, and nobody is blamed.
    stranger = {"processes": [[os.getpid(), 1 << 30, "/usr/bin/train"]], "process_loads": [[os.getpid(), 96]]}
    driver.answers_of(0, load=97, **stranger)
    wait_until(lambda: real.device().state is DeviceState.OFFLINE, "the GPU to be busy")
    assert real.device().reason == f"busy: the GPU is used by train (pid {os.getpid()})"
    job = client.jobs.create(model.id, trials=TRIALS, device_key="test")
    wait_until(lambda: client.jobs.get(job.id).waiting, "the job to wait for its device")
    driver.answers_of(0, load=0, processes=[], process_loads=[])

    handle = client.job(job.id)
    assert handle.wait().state == "succeeded"
    assert_searched_on_the_gpu(real, job.id, space)
    files = handle.download(tmp_path / "artifact")
    simulated: dict[str, Any] = json.loads(files.artifact.read_text())
    assert simulated["manifest"]["target"]["arch"] == "sm_90"
    assert simulated["report"]["simulated"]
    assert simulated["report"]["device"] == "box"
    assert simulated["report"]["coverage"] == {"tasks": 1, "covered": 1}
    (worker,) = real.farm.workers
    assert job.id in worker.log
    assert "Traceback" not in worker.log
    assert real.device().fence > calibrated
    assert sessions.stat().st_mtime_ns > before
    real.leave()


def assert_searched_on_the_gpu(real: RealFarm, job_id: str, space: ConfigSpace) -> None:
    """Each trial fits the GPU and has its outcome, and records are the device's."""
    with real.farm.services.uow.read() as repos:
        trials = list(repos.trials.page(job_id, limit=500).items)
        records = repos.records.for_job(job_id)
    assert len(trials) == TRIALS
    assert len({trial.config_key for trial in trials}) == TRIALS
    assert Outcome.INFRASTRUCTURE_ERROR not in {trial.outcome for trial in trials}
    rows = np.array([space.row_of(Config.from_json(record.config)) for record in records])
    assert space.fits(rows).all()
    assert len(set(rows[:, 0])) > 1, "tensor cores and CUDA cores are both tried"
    assert {record.device_model for record in records} == {"test-box"}
    assert all("sm_90" in record.target_key for record in records)
