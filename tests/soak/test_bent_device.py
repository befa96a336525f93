"""A real device that computes wrongly and drifts during a job: it is locked out, and let in again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import bent_server
import pytest
from real_farm import network, real_farm
from soak_audit import audit

from tunefarm_db.states.device import DeviceState
from tunefarm_db.values import Job

pytestmark = pytest.mark.exhaustive

# times that it computes wrongly and that its clock runs at half its speed, trials of a job
SIZES = {"small": (1, 12), "middle": (5, 60), "big": (20, 100)}
CALIBRATE_EVERY_SEC = 2.0
HOW = {"wrong": "computed a wrong result", "slow": "its clock drifts"}


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: a reader finds the old text or the new one."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def test_a_job_gets_over_bent_devices(tmp_path: Path, size: str, report: Callable[..., None]) -> None:
    times, trials = SIZES[size]
    shim, bend = tmp_path / "shim.so", tmp_path / "bend"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(shim)],
        input=bent_server.SHIM_SOURCE.encode(),
        check=True,
    )
    bend.write_text("straight")
    environment = {
        "BENT_FILE": str(bend),
        "BENT_SHIM": str(shim),
        "PYTHONPATH": os.pathsep.join(
            [str(Path(bent_server.__file__).parent), os.environ.get("PYTHONPATH", "")]
        ),
    }
    settings = {"lease_sec": 10.0, "calibrate_every_sec": CALIBRATE_EVERY_SEC}
    with real_farm(tmp_path, module="bent_agent", environment=environment, **settings) as real:
        farm = real.farm
        model = farm.ready_model(network())
        jobs = [farm.submit(model, trials=trials, seed=0, round_size=4)]

        def submit() -> Job:
            return farm.submit(model, trials=trials, seed=len(jobs), round_size=4)

        kept_out_sec = dict.fromkeys(HOW, 0.0)
        let_in_sec = dict.fromkeys(HOW, 0.0)
        for _ in range(times):
            for how, reason in HOW.items():
                jobs.extend(farm.see_work(submit))
                began = time.monotonic()
                write_whole(bend, how)

                def kept_out(reason: str = reason) -> bool:
                    device = real.device()
                    return device.state is DeviceState.QUARANTINED and reason in device.reason

                farm.wait(kept_out, f"the device to be quarantined, for {reason}")
                kept_out_sec[how] = max(kept_out_sec[how], round(time.monotonic() - began, 1))
                began = time.monotonic()
                write_whole(bend, "straight")
                farm.wait(
                    lambda: real.device().state is not DeviceState.QUARANTINED,
                    "the device to be let in again",
                )
                let_in_sec[how] = max(let_in_sec[how], round(time.monotonic() - began, 1))
        farm.finish()
        real.leave()
        figures = audit(
            farm,
            trials=trials * len(jobs),
            times=times,
            calibrate_every_sec=CALIBRATE_EVERY_SEC,
            kept_out_within_sec=kept_out_sec,
            let_in_within_sec=let_in_sec,
        )
        report(figures)
