"""Measure what the service adds to a trial: one search through a job's steps, and through `tune`.

    python -m benchmarks.scale.step_cost [--trials 2000] [--tuner random] [--database sqlite] [--statements]

Both replay the same recording, without letting its seconds pass, with the same tuner and seed, in this process: what is left is
the search itself, and with the service the steps, their leases and the database. No broker, no other process: the farm's
table (`benchmarks.scale.run`) has those in it. Processor time is counted, which other work on the machine disturbs less than it
does the clock.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
from benchmarks.scale.postgres import private_postgres
from benchmarks.scale.record import load_recording
from sqlalchemy import event

from tunefarm_app.devices.register import DeviceRegistration, register_device
from tunefarm_app.engines.recorded_tasks import RecordedTask
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_app.runtime.composition import Services, compose
from tunefarm_app.settings import Settings
from tunefarm_app.steps.run import run_steps
from tunefarm_db.schema import upgrade
from tunefarm_db.values import Device, StepKind
from tunefarm_tuning import Budget, tune
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.target.target import Target

TARGET = {"kind": "llvm", "num-cores": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Per trial.

    Attributes:
        by_statement: How often each statement was run, per round.
    """

    trials: int
    cpu_ms: float
    wall_ms: float
    statements: float = 0.0
    by_statement: Counter[str] = field(default_factory=Counter)


@dataclass
class Inbox:
    """A `Dispatcher` whose messages are worked off here."""

    messages: list[str] = field(default_factory=list)

    def send(self, step_id: str, kind: StepKind) -> bool:  # noqa: ARG002
        self.messages.append(step_id)
        return True

    def send_calibration(self, device_id: str, fence: int) -> bool:  # noqa: ARG002
        return False

    def queue_length(self, kind: StepKind) -> int | None:  # noqa: ARG002
        return len(self.messages)

    def ping(self) -> bool:
        return True

    def close(self) -> None: ...


class _Clock:
    """Processor and wall-clock milliseconds since it was made."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def per(self, trials: int) -> tuple[float, float]:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return cpu * 1000 / trials, wall * 1000 / trials


def through_steps(
    url: str, folder: Path, tasks: Sequence[RecordedTask], tuner: str, trials: int
) -> tuple[Cost, Device]:
    """Tune as a worker does, from the job's first round to its last; return the device as well."""
    upgrade(url)
    settings = Settings(
        database_url=url,  # type: ignore[arg-type]
        broker_url="redis://127.0.0.1:1/0",  # type: ignore[arg-type]
        store_dir=folder / "store",
        engine="replay",
        calibrate_every_sec=0.0,
        device_stale_sec=1e6,
    )
    inbox = Inbox()
    services = replace(compose(settings), dispatcher=inbox, engine=ReplayEngine())
    device = register_device(
        services,
        DeviceRegistration(
            name="dev-0", device_key="pool", target=TARGET, info={}, device_model="replay-cpu", rpc_key="key"
        ),
    )
    blob = services.blobs.put([Scenario(recorded=tuple(tasks), scale=0.0).to_bytes()])
    model_id = submit_model(services, name="net.onnx", blob=blob).model.id
    _deliver(inbox, services)
    request = JobRequest(model_id=model_id, budget=Budget(trials=trials), tuner=tuner)
    job_id = submit_job(services, request).job.id
    run_steps(inbox.messages.pop(0), services)  # finds the tasks
    by_statement: Counter[str] = Counter()

    def count(*seen: object) -> None:
        by_statement[" ".join(str(seen[2]).split())] += 1

    event.listen(services.uow.engine, "before_cursor_execute", count)
    clock = _Clock()
    _deliver(inbox, services)
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        rounds = sum(row.rounds for row in repos.jobs.tasks(job_id))
    if job.trials != trials:
        raise RuntimeError(f"the job ended with {job.trials} trials: {job.error}")
    cpu_ms, wall_ms = clock.per(trials)
    services.close()
    cost = Cost(
        trials=trials,
        cpu_ms=cpu_ms,
        wall_ms=wall_ms,
        statements=by_statement.total() / rounds,
        by_statement=Counter({text: number / rounds for text, number in by_statement.items()}),  # type: ignore[misc]
    )
    return cost, device


def _deliver(inbox: Inbox, services: Services) -> None:
    while inbox.messages:
        run_steps(inbox.messages.pop(0), services)


def directly(device: Device, folder: Path, tasks: Sequence[RecordedTask], tuner: str, trials: int) -> Cost:
    """Tune the same with the engine alone."""
    engine, path = ReplayEngine(), folder / "net.onnx"
    path.write_bytes(Scenario(recorded=tuple(tasks), scale=0.0).to_bytes())
    model = engine.import_model(path, {}, {}, cancellation=Cancellation()).model
    extracted = engine.extract_tasks(model, Target.from_json(TARGET), cancellation=Cancellation())
    clock = _Clock()
    with engine.measuring(device, cancellation=Cancellation()) as option:
        result = tune(
            extracted,
            budget=Budget(trials=trials),
            measure_option=option,
            tuner=tuner,
            log_path=folder / "records.jsonl",
        )
    cpu_ms, wall_ms = clock.per(trials)
    if result.trials != trials:
        raise RuntimeError(f"the search ended with {result.trials} trials")
    return Cost(trials=trials, cpu_ms=cpu_ms, wall_ms=wall_ms)


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    tasks = load_recording(options.recording)
    print(
        "| tuner | trials | through steps: CPU ms per trial | directly | the service adds | statements per round |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for trials in options.trials:
        with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as name:
            folder = Path(name)
            if options.database == "sqlite":
                steps, device = through_steps(
                    f"sqlite:///{folder / 'farm.db'}", folder, tasks, options.tuner, trials
                )
            else:
                with private_postgres() as server:
                    steps, device = through_steps(server.url, folder, tasks, options.tuner, trials)
            alone = directly(device, folder, tasks, options.tuner, trials)
        print(
            f"| {options.tuner} | {trials} | {steps.cpu_ms:.2f} | {alone.cpu_ms:.2f}"
            f" | {steps.cpu_ms - alone.cpu_ms:.2f} | {steps.statements:.1f} |",
            flush=True,
        )
        if options.statements:
            for text, number in steps.by_statement.most_common():
                print(f"{number:8.2f}  {text[:230]}")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[500, 2000, 8000])
    parser.add_argument("--tuner", default="random")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--recording", type=Path)
    parser.add_argument(
        "--statements", action="store_true", help="list the statements, by how often they run"
    )
    options = parser.parse_args(arguments)
    if options.recording is None:
        from benchmarks.scale.record import RECORDING

        options.recording = RECORDING
    return options


if __name__ == "__main__":
    sys.exit(main())
