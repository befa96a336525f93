"""Measure the cells of the table: a farm with a number of devices at work, watched for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.scale.farm import ScaleFarm, scale_farm, wait_for
from benchmarks.scale.usage import Usage, usage_of

from tunefarm_app.engines.recorded_tasks import RecordedTask
from tunefarm_app.engines.scenario import Scenario

ENDLESS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The conditions of a cell.

    Attributes:
        jobs: One per device, of networks that are alike but for their names; or one job that has all devices.
        scale: What the recorded seconds are multiplied by.
        warm_sec: How long every device has been at work before the clock starts.
        watch_sec: How long the clock runs.
    """

    database: str
    devices: int
    jobs: int
    tuner: str = "random"
    scale: float = 1.0
    warm_sec: float = 10.0
    watch_sec: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The figures of a cell.

    Attributes:
        per_sec: Trials per second of all devices, each counted from the end of a round to the end of a round.
        trial_sec: Seconds that a trial took of its device, from one round's end to the next one's.
        recorded_sec: Of these, what the recording says that building and measuring take.
        usage: By part, over the time on the clock; memory at its end.
        idle: Share of the machine's processor time that nobody used.
        elsewhere: Share of it that processes had which are not the farm's.
    """

    asked: Asked
    trials: int
    per_sec: float
    trial_sec: float
    recorded_sec: float
    watched_sec: float
    usage: dict[str, Usage]
    idle: float
    elsewhere: float
    cores: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_cells(cells: Sequence[Asked], tasks: Sequence[RecordedTask]) -> Iterator[Cell]:
    """Start a farm for the first cell and watch its devices work; then grow it for each next cell.

    The cells are of one database, and each has as many devices and jobs as the one before, or more.
    """
    steps = devices = jobs = 0
    with scale_farm(cells[0].database) as farm:
        for cell in cells:
            farm.start_workers(cell.devices + 1 - steps)  # one to spare
            steps = cell.devices + 1
            farm.add_devices(devices, cell.devices)
            devices = cell.devices
            scenarios = [
                Scenario(recorded=tuple(tasks), scale=cell.scale, seed=number)
                for number in range(jobs, cell.jobs)
            ]
            farm.submit(scenarios, tuner=cell.tuner, trials=ENDLESS)
            jobs = cell.jobs
            since = time.time()
            wait_for(
                lambda since=since, cell=cell: (  # type: ignore[misc]
                    _devices_at_work(farm, since) >= cell.devices and _open_jobs(farm) == cell.jobs
                ),
                "every device to work",
            )
            yield _watch(cell, farm)


def _watch(cell: Asked, farm: ScaleFarm) -> Cell:
    time.sleep(cell.warm_sec)
    began, before, machine = time.time(), usage_of(farm.parts), machine_ticks()
    time.sleep(cell.watch_sec)
    ended, after, machine_after = time.time(), usage_of(farm.parts), machine_ticks()
    if _open_jobs(farm) != cell.jobs:
        raise RuntimeError("a job ended before its time")
    return _cell(cell, farm, began, ended, before, after, machine_after - machine)


def _cell(
    cell: Asked,
    farm: ScaleFarm,
    began: float,
    ended: float,
    before: dict[str, Usage],
    after: dict[str, Usage],
    machine: MachineTicks,
) -> Cell:
    rounds = _rows_between(farm, began, ended)
    per_sec = spent_sec = recorded_sec = 0.0
    trials = 0
    by_device: dict[str, list[tuple[float, int, float]]] = {}
    for device, at, count, seconds in rounds:
        by_device.setdefault(device, []).append((at, count, seconds))
    for ends in by_device.values():
        ends.sort()
        took = ends[-1][0] - ends[0][0]
        done = sum(count for _, count, _ in ends[1:])
        if took > 0:
            per_sec += done / took
            trials += done
            spent_sec += took
            recorded_sec += sum(seconds for _, _, seconds in ends[1:])
    usage = {
        name: Usage(
            cpu_sec=after[name].cpu_sec - before[name].cpu_sec,
            pss_bytes=after[name].pss_bytes,
            processes=after[name].processes,
        )
        for name in after
    }
    farms_sec = sum(process.cpu_sec for process in usage.values())
    return Cell(
        asked=cell,
        trials=trials,
        per_sec=per_sec,
        trial_sec=spent_sec / max(trials, 1),
        recorded_sec=recorded_sec / max(trials, 1),
        watched_sec=ended - began,
        usage=usage,
        idle=machine.idle_sec / machine.all_sec,
        elsewhere=max(0.0, (machine.all_sec - machine.idle_sec - farms_sec) / machine.all_sec),
        cores=len(os.sched_getaffinity(0)),
    )


def _rows_between(farm: ScaleFarm, began: float, ended: float) -> list[tuple[str, float, int, float]]:
    """Return the rounds that ended in between: device, when, how many trials, their recorded seconds."""
    rows = farm.rows(
        "SELECT records.device_id, steps.finished_at, count(*), sum(trials.build_sec + trials.run_sec)"
        " FROM steps JOIN trials ON trials.job_id = steps.job_id AND trials.round = steps.round"
        " JOIN records ON records.id = trials.record_id"
        " WHERE steps.kind = 'tune' AND steps.state = 'done'"
        " AND steps.finished_at BETWEEN :began AND :ended"
        " GROUP BY records.device_id, steps.id, steps.finished_at",
        began=began,
        ended=ended,
    )
    return [(str(device), float(at), int(count), float(seconds)) for device, at, count, seconds in rows]


def _devices_at_work(farm: ScaleFarm, since: float) -> int:
    """Return how many devices have ended a round."""
    return len({device for device, *_ in _rows_between(farm, since, time.time())})


def _open_jobs(farm: ScaleFarm) -> int:
    return int(farm.rows("SELECT count(*) FROM jobs WHERE finished_at IS NULL")[0][0])


@dataclass(frozen=True, slots=True)
class MachineTicks:
    """Processor time of the whole machine."""

    all_sec: float
    idle_sec: float

    def __sub__(self, other: MachineTicks) -> MachineTicks:
        return MachineTicks(self.all_sec - other.all_sec, self.idle_sec - other.idle_sec)


def machine_ticks() -> MachineTicks:
    """Return the processor time since the machine began."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    ticks = [int(field) for field in first.split()[1:9]]
    per_sec = os.sysconf("SC_CLK_TCK")
    return MachineTicks(sum(ticks) / per_sec, (ticks[3] + ticks[4]) / per_sec)
