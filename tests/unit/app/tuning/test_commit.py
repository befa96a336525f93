"""The rows of a round: each trial is stored as its outcome says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tunefarm_app.storage.rows import engine_record, record_rows
from tunefarm_db.values import Record
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import DeviceInfo, SessionOrigin
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.testing.synthetic import synthetic_task, tiny_space

SPACE = tiny_space()


def test_a_record_row_is_the_record_of_its_outcome(farm: Any) -> None:
    device = replace(
        farm.add_device(),
        calibration={"time_sec": 0.25, "all_cores_sec": 0.5},
        info={"agent": {"throttle": ["thermal-cpufreq-0"]}},
    )
    job = farm.submit(farm.ready_model())
    task = synthetic_task()
    outcomes = [
        TrialOutcome(
            asked=SPACE.config_at(0),
            config=SPACE.config_at(1),
            outcome=Outcome.OK,
            samples_sec=(1e-3, 2e-3, 3e-3),
            build_sec=0.5,
            run_sec=0.25,
            measured_at=7.0,
            space_key=SPACE.key,
            truncated=True,
            confirmed=True,
            facts={"clock_mhz": 1500},
            origin=SessionOrigin(certificate_sha256="0a" * 32, ticket_jti="t1"),
        ),
        TrialOutcome(
            asked=SPACE.config_at(2),
            config=SPACE.config_at(2),
            outcome=Outcome.BUILD_ERROR,
            message="no",
            space_key=SPACE.key,
        ),
    ]
    rows = record_rows(outcomes, task, job, device, toolchain="tvm-1")
    info = DeviceInfo(model=device.device_model, num_cores=1)
    calibration = {
        "calibration_sec": 0.25,
        "calibration_all_cores_sec": 0.5,
        "throttle": ["thermal-cpufreq-0"],
    }
    for row, outcome in zip(rows, outcomes, strict=True):
        stored = Record(
            **{name: getattr(row, name) for name in row.__slots__},
            id="rec_1",
            created_at=0.0,
            superseded=False,
        )
        record = outcome.to_record(task, info, tuner=job.tuner, toolchain="tvm-1", extra=calibration)
        assert engine_record(stored).to_json() == replace(record, kernel="", shapes="").to_json()
        assert (row.cost_sec, row.confirmed) == (record.cost_sec, record.confirmed)
        assert (row.device_id, row.job_id) == (device.id, job.id)
