"""Replayed measurements behind sessions: a device that opens none has no measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from farm_processes import free_port

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.replay_sessions import SessionRunner
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.runtime.composition import compose_worker
from tunefarm_app.settings import Settings
from tunefarm_db.values import Device
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import BuildInput, DeviceInfo, MeasureInput

pytest.importorskip("tvm")


def nowhere(_device: Device) -> RemoteDevice:
    """Return an address at which nobody listens."""
    info = DeviceInfo(model="nobody", num_cores=1)
    return RemoteDevice(tracker_host="127.0.0.1", tracker_port=free_port(), key="k", info=info, fence=1)


def test_a_device_that_opens_no_session_has_no_measurements(farm, tmp_path: Path) -> None:
    device = farm.add_device()
    scenario = tmp_path / "scenario"
    scenario.write_bytes(Scenario(tasks=1).to_bytes())
    never = Cancellation()
    engine = ReplayEngine(remote=nowhere)
    (task,) = engine.import_model(scenario, {}, {}, cancellation=never).tasks
    with engine.measuring(device, cancellation=never) as option:
        assert isinstance(option.runner, SessionRunner)
        config = option.builder.config_space(task).config_at(0)
        (built,) = option.builder.build([BuildInput(task=task, config=config)])
        assert built.artifact_path is not None
        inputs = [MeasureInput(task=task, artifact_path=built.artifact_path)] * 2
        for results in (option.runner.run(inputs), option.runner.run_interleaved(inputs, rounds=3)):
            outcomes = [result.failure.outcome for result in results if result.failure is not None]
            assert outcomes == [Outcome.INFRASTRUCTURE_ERROR] * 2
    with pytest.raises(DeviceLostError, match="cannot open a session"):
        engine.calibrate(device, cancellation=never)


@pytest.mark.parametrize("opens", [False, True])
def test_sessions_are_opened_where_the_setting_says_so(farm, opens: bool, tmp_path: Path) -> None:
    ensure_authority(tmp_path)
    settings: Settings = farm.services.settings.model_copy(
        update={
            "engine": "replay",
            "replay_sessions": opens,
            "gateway": "127.0.0.1:1",
            "gateway_dir": tmp_path,
        }
    )
    services = compose_worker(settings, draining=lambda: False)
    try:
        engine = services.require_engine()
        device = replace(farm.add_device(), by_gateway=True)
        with engine.measuring(device, cancellation=Cancellation()) as option:
            assert isinstance(option.runner, SessionRunner) is opens
    finally:
        services.close()
