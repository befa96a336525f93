"""Compare overlapped rounds with rounds one after the other, on a replayed machine in real time.

    python -m benchmarks.overlap.run --output out/overlap.jsonl [--seeds 0 1] [--slow 3] [--table]

`tune` runs with its own scheduler and tuner; builders and device only let the recorded seconds pass, multiplied as the
regime says. Sides: *off* prepares no round ahead, *on* is as shipped (two rounds, of a task with a round under way only
where that pays); *one ahead* and *three ahead*; *always* takes no heed of whether it pays. With `--slow` all these seconds pass so many times slower, and the figures are divided by
it: on a busy machine, where proposing takes several times as long, the two keep their proportion.
What is in the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.overlap.machine import RecordedKernel, recorded_kernels

from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import Failure, MeasureInput, MeasureOption, MeasureResult
from tunefarm_tuning.measure.runner.replay import ReplayRunner
from tunefarm_tuning.search import round_queue
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.tune import tune
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

SIDES = {"model": ("off", "one ahead", "on", "three ahead"), "one task": ("off", "on", "always")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """The durations of a replayed machine.

    Attributes:
        build: What recorded seconds of building are multiplied by.
        run: Likewise of measuring.
        workers: Builds at a time.
    """

    build: float
    run: float
    workers: int


REGIMES = {
    "GPU, nvcc": Regime(build=6.0, run=2.0, workers=8),
    "slow board": Regime(build=1.0, run=4.0, workers=8),
    "one builder": Regime(build=1.0, run=1.0, workers=1),
}
SEARCHES = {"model": 160, "one task": 96}
ONE_TASK = "fused_conv2d9_add7_add8_relu4"


class BusyRunner(ReplayRunner):
    """A device elsewhere that counts the seconds in which it measures."""

    busy_sec = 0.0

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        began = time.monotonic()
        try:
            return super().run(inputs)
        finally:
            self.busy_sec += time.monotonic() - began


@contextmanager
def side(name: str) -> Iterator[None]:
    """Let `tune` prepare rounds ahead or not."""
    patches: dict[str, tuple[object, str, object]] = {
        "off": (round_queue, "_DEPTH", 0),
        "one ahead": (round_queue, "_DEPTH", 1),
        "three ahead": (round_queue, "_DEPTH", 3),
        "always": (round_queue, "_pays_ahead", lambda *_: True),
    }
    if name not in patches:
        yield
        return
    owner, attribute, other = patches[name]
    shipped = getattr(owner, attribute)
    setattr(owner, attribute, other)
    try:
        yield
    finally:
        setattr(owner, attribute, shipped)


def run(
    kernels: Sequence[RecordedKernel], regime: Regime, trials: int, seed: int, slow: float
) -> dict[str, Any]:
    """Tune; return the wall-clock, the device's busy seconds, and the latency over time and trials."""
    by_key = {kernel.task.workload.key: kernel for kernel in kernels}

    def answer(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        cost_sec, _, run_sec = by_key[task.workload.key].answer(config)
        time.sleep(run_sec * regime.run * slow)
        return (cost_sec,) * 3

    def recorded(task: TuningTask, config: Config) -> tuple[float, Failure | None]:
        return by_key[task.workload.key].answer(config)[1] * regime.build * slow, None

    builder = ReplayBuilder(
        {key: kernel.space for key, kernel in by_key.items()}, recorded=recorded, workers=regime.workers
    )
    curve: list[tuple[float, int, float]] = []

    def keep(event: object) -> None:
        latency_sec = getattr(event, "best_latency_sec", None)
        if latency_sec is not None:
            curve.append((event.wall_sec / slow, event.trials, latency_sec))  # type: ignore[attr-defined]

    with builder, BusyRunner(answer, shares_host=False) as runner:
        result = tune(
            [kernel.task for kernel in kernels],
            budget=Budget(trials=trials),
            measure_option=MeasureOption(builder=builder, runner=runner),
            seed=seed,
            on_event=keep,
            confirm=False,
        )
    return {
        "wall_sec": result.wall_sec / slow,
        "trials": result.trials,
        "busy_sec": runner.busy_sec / slow,
        "curve": curve,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--slow", type=float, default=1.0)
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    kernels = recorded_kernels()
    done = [json.loads(line) for line in args.output.read_text().splitlines()] if args.output.exists() else []
    for seed in () if args.table else args.seeds:
        for search in args.searches:
            chosen = [
                kernel for kernel in kernels if search == "model" or kernel.task.workload.name == ONE_TASK
            ]
            for regime, secs in REGIMES.items():
                for name in SIDES[search]:
                    settings = {"regime": regime, "search": search, "side": name, "seed": seed}
                    if any(line | settings == line for line in done):
                        continue
                    with side(name):
                        measured = run(chosen, secs, SEARCHES[search], seed, args.slow)
                    done.append({**settings, **measured})
                    with args.output.open("a") as file:
                        file.write(json.dumps(done[-1], separators=(",", ":")) + "\n")
    from benchmarks.overlap.table import table_of

    print(table_of(done))


if __name__ == "__main__":
    main()
