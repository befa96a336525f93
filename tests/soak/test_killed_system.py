"""A whole farm is killed at random moments of a job, and restarted in its folder.

Every process is killed at once, the supervisor too: nobody is left to tidy up. The job must end as if nothing had
been: an undisturbed run with the same seed is what it is held against. What makes runs alike is one device (one track,
one order of trials), one kernel (with several, the time that rounds take decides whose turn it is), and costs that
are the same each time: the replay engine's are; measured ones are not, so there the tuner is one that does not look
at them.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lease_log
import psutil
import pytest
from farm_processes import command_line
from real_farm import network
from soak_audit import nothing_wrong
from soak_farm import MARK, WITHIN_SEC, Figures, marked
from sqlalchemy import Engine, text
from waiting import wait_gone, wait_until

from tunefarm.client import Client
from tunefarm.embedded import EmbeddedFarm, FarmOptions
from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.engine import make_engine

pytestmark = pytest.mark.exhaustive

# trials, trials of a round, kills, by engine
SIZES: dict[str, dict[str, tuple[int, int, int]]] = {
    "small": {"replay": (32, 4, 1)},
    "middle": {"replay": (200, 8, 5), "tvm": (60, 4, 2)},
    "big": {"replay": (500, 8, 10), "tvm": (500, 8, 10)},
}
TUNERS = {"replay": "xgb", "tvm": "random"}
SEED = 7


@dataclass(frozen=True, kw_only=True)
class Run:
    """The results of a job.

    Attributes:
        trials: Task and config of each, in their order.
        costs: Of each config that has one.
        redone: Rounds that were begun more than once.
    """

    trials: list[tuple[int, str]]
    costs: dict[str, float]
    redone: int
    log: lease_log.LeaseLog
    steps: int
    seconds: float

    @property
    def best(self) -> str:
        return min(self.costs, key=lambda key: self.costs[key])


class System:
    """A farm in a folder, which can be killed and started again."""

    def __init__(self, home: Path, engine: str, round_size: int, lease_sec: float) -> None:
        self.home = home
        self._options = FarmOptions(
            concurrency=1,
            settings={
                "ENGINE": engine,
                "LEASE_SEC": str(lease_sec),
                "ROUND_SIZE": str(round_size),
            },
        )
        self.farm = self._start()
        self.engine: Engine = make_engine(self.farm.home.database_url)
        lease_log.install(self.engine)

    def _start(self) -> EmbeddedFarm:
        farm = EmbeddedFarm(self.home, self._options).start()
        farm.wait_ready(WITHIN_SEC)
        return farm

    def again(self) -> None:
        self.farm = self._start()

    def kill(self) -> None:
        """``kill -9`` of every process of the farm."""
        (supervisor,) = [
            child
            for child in psutil.Process().children()
            if f"--home={self.home} " in f"{command_line(child)} "
        ]
        processes = [supervisor, *supervisor.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.farm.stop()
        wait_gone((process.pid for process in processes), "the farm")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            result = connection.execution_options(tunefarm_read_only=True).execute(text(query)).tuples().all()
        return [tuple(row) for row in result]

    def trials(self) -> int:
        return int(self.rows("SELECT count(*) FROM trials")[0][0])

    def close(self) -> None:
        self.engine.dispose()
        self.farm.stop()


@contextmanager
def system(home: Path, engine: str, round_size: int, lease_sec: float) -> Iterator[System]:
    system = System(home, engine, round_size, lease_sec)
    try:
        yield system
    finally:
        system.close()


def run_job(
    home: Path, engine: str, model: Path, *, trials: int, round_size: int, kill_at: list[tuple[int, float]]
) -> Run:
    """Tune in a farm of its own, and kill it at the given numbers of trials, some seconds later."""
    began = time.monotonic()
    # Without kills no lease may expire, even on a busy machine; after a kill the farm waits until it expires.
    with system(home, engine, round_size, lease_sec=8.0 if kill_at else 60.0) as farm:
        with Client(farm.farm.url, farm.farm.api_key) as client:
            job = client.tune(model, trials=trials, seed=SEED, tuner=TUNERS[engine])
        for number, later_sec in kill_at:
            wait_until(lambda number=number: farm.trials() >= number, "trials", within_sec=WITHIN_SEC)
            time.sleep(later_sec)
            farm.kill()
            farm.again()
        with Client(farm.farm.url, farm.farm.api_key) as client:
            done = client.jobs.get(job.id)
            while not done.is_finished:
                time.sleep(0.5)
                done = client.jobs.get(job.id)
            assert done.state == "succeeded", done.error
            assert (done.trials, done.stop_reason) == (trials, "trials")
        farm.farm.stop()
        nothing_wrong(farm.rows)
        log = lease_log.read(farm.engine)
        assert not log.overlapping
        assert not log.committed_twice
        assert not log.out_of_turn
        assert farm.rows("PRAGMA integrity_check") == [("ok",)]
        trial_rows = farm.rows("SELECT position, config_key, cost_sec FROM trials ORDER BY round, ordinal")
        begun = farm.rows("""
            SELECT count(*) FROM lease_log JOIN steps ON lease_log.owner = 'step:' || steps.id
            WHERE lease_log.what = 'devices' AND steps.kind = 'tune' GROUP BY steps.id""")
        return Run(
            trials=[(position, key) for position, key, _ in trial_rows],
            costs={key: cost for _, key, cost in trial_rows if cost is not None},
            redone=sum(times - 1 for (times,) in begun),
            log=log,
            steps=farm.rows("SELECT count(*) FROM steps")[0][0],
            seconds=round(time.monotonic() - began, 1),
        )


@pytest.fixture(params=SIZES[os.environ.get("TUNEFARM_SOAK", "small")])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_killed_system_finds_what_an_undisturbed_one_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    size: str,
    rng: random.Random,
    report: Callable[[Figures], None],
) -> None:
    trials, round_size, kills = SIZES[size][engine]
    mark = secrets.token_hex(8)
    monkeypatch.setenv(MARK, mark)
    model = tmp_path / "net.onnx"
    model.write_bytes(network() if engine == "tvm" else Scenario(tasks=1, trial_sec=0.05).to_bytes())
    # Not in the last rounds: they may be over before the kill.
    numbers = sorted(rng.sample(range(1, trials - 3 * round_size), kills))
    kill_at = [(number, rng.random()) for number in numbers]
    terms = {"trials": trials, "round_size": round_size}
    calm = run_job(tmp_path / "calm", engine, model, **terms, kill_at=[])
    killed = run_job(tmp_path / "killed", engine, model, **terms, kill_at=kill_at)
    wait_until(lambda: not marked(mark), lambda: f"the end of processes {marked(mark)}")
    assert calm.redone == 0
    assert killed.redone <= kills
    assert killed.trials == calm.trials
    if engine == "replay":
        assert killed.costs == calm.costs
    report(
        Figures(
            jobs=1,
            steps=killed.steps,
            trials=len(killed.trials),
            step_leases=killed.log.leases["steps"],
            device_leases=killed.log.leases["devices"],
            side_by_side=killed.log.side_by_side,
            seconds=killed.seconds,
            more={
                "kills": kills,
                "rounds_redone": killed.redone,
                "same_trials_in_order": killed.trials == calm.trials,
                "same_best": killed.best == calm.best,
                "best_sec": (killed.costs[killed.best], calm.costs[calm.best]),
                "its_best_in_the_calm_run_sec": calm.costs.get(killed.best),
                "calm_seconds": calm.seconds,
            },
        )
    )
