"""Fill a database with as many trials as a farm collects in a year: jobs, rounds, events and records."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, insert, text

from tunefarm_app.engines.recorded_tasks import RecordedTask
from tunefarm_db.engine import make_engine
from tunefarm_db.ids import new_id
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import (
    Base,
    CounterRow,
    DeviceRow,
    EventRow,
    JobRow,
    JobTaskRow,
    ModelRow,
    ModelTaskRow,
    RecordRow,
    SpaceRow,
    StepRow,
    TrialRow,
    WorkloadRow,
    table_of,
)
from tunefarm_db.values import DeviceState, ModelState, StepKind, StepState
from tunefarm_tuning.space.config_space import ConfigSpace

ROUND, TASKS, MODELS, WORKLOADS = 8, 20, 50, 400
JOB_TRIALS, LONG_TRIALS = 1_000, 20_000
FAILING = 0.05
TOOLCHAIN, DEVICE_MODEL, POOL = "tvm-0.27.0.post1", "model-a", "pool"
TARGETS = ("llvm -mcpu=znver5 -num-cores=1", "llvm -mcpu=skylake-avx512 -num-cores=8")
_MESSAGE = (
    "the kernel did not end within 10 s: "
    + "the session was closed, and the next candidate had a new one; " * 3
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """The ids and keys that the queries use.

    Attributes:
        long_job: A job that is being tuned, and has more trials than any other.
        done_job: One that ended.
        workload_keys: Of the long job's tasks.
    """

    long_job: str
    done_job: str
    model: str
    workload_keys: tuple[str, ...]
    records: int


def fill(url: str, rows: int, tasks: Sequence[RecordedTask]) -> None:
    """Store synthetic jobs with `rows` trials and as many records; earlier rows stay."""
    engine = make_engine(url)
    rng = random.Random(1)
    began = time.monotonic()
    models = list(_models(engine, rng, tasks))
    devices = _devices(engine)
    left = rows
    while left > 0:
        trials = LONG_TRIALS if left == rows and rows > LONG_TRIALS else min(JOB_TRIALS, left)
        _job(engine, rng, rng.choice(models), devices, trials, running=left == rows)
        left -= trials
        print(f"{rows - left} trials, {time.monotonic() - began:.0f} s", end="\r", file=sys.stderr)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
    engine.dispose()


def look(url: str) -> Filled | None:
    """Return the ids and keys of a filled database; None if it has no trials."""
    engine = make_engine(url)
    with engine.connect() as connection:

        def first(query: str, **values: Any) -> Any:
            row = connection.execute(text(query), values).first()
            return None if row is None else row[0]

        job = first("SELECT id FROM jobs ORDER BY trials DESC LIMIT 1")
        if job is None:
            return None
        keys = connection.execute(
            text("SELECT workload_key FROM job_tasks WHERE job_id = :job ORDER BY position"), {"job": job}
        )
        filled = Filled(
            long_job=job,
            done_job=first("SELECT id FROM jobs WHERE state = 'succeeded' ORDER BY id LIMIT 1") or job,
            model=first("SELECT model_id FROM jobs WHERE id = :job", job=job),
            workload_keys=tuple(row[0] for row in keys),
            records=first("SELECT count(*) FROM records"),
        )
    engine.dispose()
    return filled


def _store(engine: Engine, row: type[Base], values: Sequence[dict[str, Any]]) -> None:
    if values:
        with engine.begin() as connection:
            for start in range(0, len(values), 5_000):
                connection.execute(insert(table_of(row)), values[start : start + 5_000])


def _models(engine: Engine, rng: random.Random, tasks: Sequence[RecordedTask]) -> Iterator[_Model]:
    """Store workloads with their spaces on each target, and networks of 20 of them."""
    workloads = [
        _Workload(f"{number * 0x9E3779B97F4A7C15 % (1 << 64):032x}", tasks[number % len(tasks)])
        for number in range(WORKLOADS)
    ]
    _store(
        engine,
        WorkloadRow,
        [
            {
                "key": workload.key,
                "toolchain": TOOLCHAIN,
                "name": workload.task.name,
                "flops": workload.task.flops,
                "args": [],
                "ir": json.dumps(workload.task.to_json()),
            }
            for workload in workloads
        ],
    )
    spaces = {workload.task.name: ConfigSpace.from_json(workload.task.space) for workload in workloads}
    _store(
        engine,
        SpaceRow,
        [
            {
                "workload_key": workload.key,
                "target_key": target,
                "toolchain": TOOLCHAIN,
                "space": dict(workload.task.space),
                "space_key": spaces[workload.task.name].key,
                "family": spaces[workload.task.name].family,
                "extents": list(spaces[workload.task.name].extents),
            }
            for workload in workloads
            for target in TARGETS
        ],
    )
    for version in range(1, MODELS + 1):
        # Some workloads are in many networks.
        chosen = [workloads[int(WORKLOADS * rng.random() ** 2)] for _ in range(3 * TASKS)]
        model = _Model(new_id("mdl"), list(dict.fromkeys(chosen))[:TASKS], spaces)
        _store(
            engine,
            ModelRow,
            [
                {
                    "id": model.id,
                    "name": "net.onnx",
                    "version": version,
                    "sha256": f"{rng.getrandbits(256):064x}",
                    "size_bytes": 1 << 20,
                    "shapes": {},
                    "shapes_key": "{}",
                    "state": ModelState.READY,
                    "inputs": [],
                    "outputs": [],
                    "operators": [],
                }
            ],
        )
        _store(
            engine,
            ModelTaskRow,
            [
                {
                    "model_id": model.id,
                    "pipeline": "cpu",
                    "toolchain": TOOLCHAIN,
                    "position": position,
                    "workload_key": workload.key,
                    "weight": 1,
                }
                for position, workload in enumerate(model.workloads)
            ],
        )
        yield model


@dataclass(frozen=True, slots=True)
class _Workload:
    key: str
    task: RecordedTask

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, slots=True)
class _Model:
    id: str
    workloads: list[_Workload]
    spaces: dict[str, ConfigSpace]


def _devices(engine: Engine) -> list[str]:
    ids = [new_id("dev") for _ in range(64)]
    device = {
        "device_key": POOL,
        "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 1},
        "info": {},
        "device_model": DEVICE_MODEL,
        "state": DeviceState.ONLINE,
        "ready": True,
    }
    _store(
        engine,
        DeviceRow,
        [
            {**device, "id": device_id, "name": f"dev-{n}", "rpc_key": f"key-{n}"}
            for n, device_id in enumerate(ids)
        ],
    )
    return ids


def _job(
    engine: Engine, rng: random.Random, model: _Model, devices: list[str], trials: int, *, running: bool
) -> None:
    job_id, target, tasks = new_id("job"), TARGETS[0] if running else rng.choice(TARGETS), model.workloads
    now = time.time()
    rounds = -(-trials // ROUND)
    trial_rows: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    histories: list[list[list[Any]]] = [[] for _ in tasks]
    for number in range(rounds):
        position, device = number % len(tasks), rng.choice(devices)
        task = tasks[position].task
        for ordinal in range(min(ROUND, trials - len(trial_rows))):
            config, _, samples, build_sec, run_sec, _ = rng.choice(task.trials)
            config = [config[0], [*config[1], len(trial_rows)]]  # as long as a real one, and none twice
            failed = rng.random() < FAILING
            cost_sec = None if failed else rng.lognormvariate(-7, 1)
            common = {
                "outcome": "run-timeout" if failed else "ok",
                "cost_sec": cost_sec,
                "message": _MESSAGE if failed else "",
                "build_sec": build_sec,
                "measured_at": now,
            }
            record_id, key = new_id("rec"), json.dumps(config, separators=(",", ":"))
            records.append(
                {
                    **common,
                    "id": record_id,
                    "workload_key": tasks[position].key,
                    "target_key": target,
                    "device_model": DEVICE_MODEL,
                    "toolchain": TOOLCHAIN,
                    "space_key": model.spaces[task.name].key,
                    "config": config,
                    "samples_sec": [] if failed else [cost_sec * rng.uniform(0.99, 1.01) for _ in samples],
                    "tuner": "xgb",
                    "extra": {"run_sec": run_sec, "noise": 0.004321, "calibration_sec": 0.00123456789},
                    "device_id": device,
                    "job_id": job_id,
                }
            )
            trial_rows.append(
                {
                    **common,
                    "id": new_id("trl"),
                    "job_id": job_id,
                    "position": position,
                    "round": number,
                    "ordinal": ordinal,
                    "config_key": key,
                    "asked_key": key,
                    "run_sec": run_sec,
                    "record_id": record_id,
                }
            )
        histories[position].append([ROUND, 1e-3])
        steps.append(_step(job_id, model.id, number, now, done=not running or number < rounds - 1))
        events.append(_event(job_id, number, now))
    finished = None if running else now
    job = {
        "id": job_id,
        "model_id": model.id,
        "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 1},
        "target_key": target,
        "device_key": POOL,
        "tuner": "xgb",
        "seed": 0,
        "budget": {"trials": trials},
        "options": {},
        "state": JobState.TUNING if running else JobState.SUCCEEDED,
        "progress": {},
        "trials": trials,
        "event_seq": rounds,
        "finished_at": finished,
    }
    _store(engine, JobRow, [job])
    _store(
        engine,
        JobTaskRow,
        [
            {
                "job_id": job_id,
                "position": position,
                "workload_key": task.key,
                "toolchain": TOOLCHAIN,
                "weight": 1,
                "name": task.task.name,
                "space_key": model.spaces[task.task.name].key,
                "best_cost_sec": 1e-3,
                "trials": len(histories[position]) * ROUND,
                "rounds": len(histories[position]),
                "history": histories[position],
            }
            for position, task in enumerate(tasks)
        ],
    )
    for row, values in ((RecordRow, records), (TrialRow, trial_rows), (StepRow, steps), (EventRow, events)):
        _store(engine, row, values)
    _count(engine, trials)


def _step(job_id: str, model_id: str, number: int, now: float, *, done: bool) -> dict[str, Any]:
    return {
        "id": new_id("stp"),
        "kind": StepKind.TUNE,
        "subject_id": job_id,
        "model_id": model_id,
        "job_id": job_id,
        "round": number,
        "state": StepState.DONE if done else StepState.LEASED,
        "fence": 1,
        "attempts": 1,
        "lease_owner": None if done else "nobody",
        "lease_until": None if done else now + 1e6,
        "not_before": now,
        "sent_at": now,
        "in_flight": None if done else {"position": 0, "trials": ROUND, "asked": []},
        "finished_at": now if done else None,
    }


def _event(job_id: str, number: int, now: float) -> dict[str, Any]:
    data = {
        "round": number,
        "position": number % TASKS,
        "task": "fused_conv2d_add_relu",
        "outcomes": {"ok": 8},
        "failed": None,
        "exhausted": False,
        "best_cost_sec": 0.00123456789,
        "trials": number * ROUND,
        "failures": 12,
        "tuned_sec": 1234.56789,
        "best_latency_sec": 0.0123456789,
    }
    return {"job_id": job_id, "seq": number + 1, "kind": "round", "data": data, "created_at": now}


def _count(engine: Engine, trials: int) -> None:
    """Leave a counter as the jobs would: the metrics read it, and not the trials."""
    row = {"name": "trials", "label": "ok", "slot": 0, "value": float(trials)}
    with engine.begin() as connection:
        updated = connection.execute(text("UPDATE counters SET value = value + :trials"), {"trials": trials})
        if updated.rowcount == 0:
            connection.execute(insert(table_of(CounterRow)), [row])
