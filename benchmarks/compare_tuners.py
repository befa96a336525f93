"""Tuners side by side on one convolution, on one core of this machine.

    python benchmarks/compare_tuners.py --trials 64 --seeds 0 1 2 --tuners random ga xgb

Prints a line per run, then a row per tuner: the median over seeds of the best throughput after so many trials, and where
the seconds went. A kernel's cost is the fastest of many short samples here: other work on the machine slows kernels down and
never speeds them up. Within a seed the tuners run one after the other, so that it disturbs all alike.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from tunefarm_tuning.builder.pool import LocalBuilder
from tunefarm_tuning.measure import MeasureOption, Outcome, TimingOption
from tunefarm_tuning.round import run_round
from tunefarm_tuning.runner.local import LocalRunner
from tunefarm_tuning.target import Target
from tunefarm_tuning.targets import detect_host_target
from tunefarm_tuning.task import TuningTask
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tuner import make_tuner

CHECKPOINTS = (16, 32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class Run:
    tuner: str
    seed: int
    gflops: dict[int, float]  # best after so many trials
    seconds: float
    build_sec: float  # summed over builds, which overlap
    measure_sec: float
    candidates: int  # built, those that repeat an earlier trial included
    failures: int


def one_run(name: str, seed: int, task: TuningTask, option: MeasureOption, trials: int) -> Run:
    space = option.builder.config_space(task)
    tuner = make_tuner(name, task, space, seed=seed)
    counting = _CountingBuilder(option.builder)
    option = MeasureOption(builder=counting, runner=option.runner)
    best, gflops, outcomes = float("inf"), {}, []
    began = time.monotonic()
    while len(outcomes) < trials:
        found = run_round(tuner, task, min(8, trials - len(outcomes)), option)
        if not found:
            break
        for outcome in found:
            outcomes.append(outcome)
            best = min(best, outcome.cost_sec or best)
            if len(outcomes) in CHECKPOINTS:
                gflops[len(outcomes)] = task.workload.flops / best / 1e9
    tuner.close()
    return Run(
        tuner=name,
        seed=seed,
        gflops=gflops,
        seconds=time.monotonic() - began,
        build_sec=sum(o.build_sec for o in outcomes),
        measure_sec=sum(o.run_sec for o in outcomes),
        candidates=counting.count,
        failures=sum(o.outcome is not Outcome.OK for o in outcomes),
    )


class _FastestOf:
    """A runner whose only sample is the fastest."""

    def __init__(self, runner) -> None:
        self._runner = runner
        self.device = runner.device

    def run(self, inputs):
        return [
            replace(r, samples_sec=(min(r.samples_sec),)) if r.samples_sec else r
            for r in self._runner.run(inputs)
        ]

    def close(self) -> None:
        """The runner is another's."""


class _CountingBuilder:
    def __init__(self, builder) -> None:
        self._builder = builder
        self.count = 0

    def config_space(self, task):
        return self._builder.config_space(task)

    def build(self, inputs):
        self.count += len(inputs)
        return self._builder.build(inputs)

    def close(self) -> None:
        """The builder is another's."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--trials", type=int, default=64)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--tuners", nargs="+", default=["random", "ga", "xgb"])
    arguments.add_argument("--size", type=int, default=56, help="height and width of the convolution's input")
    arguments.add_argument("--channels", type=int, default=64)
    arguments.add_argument("--json", type=Path, help="append each run to this file, as JSON lines")
    asked = arguments.parse_args()
    host = detect_host_target()
    target = Target.from_json({**host.to_json(), "num-cores": 1})
    task = sample_task("conv2d", size=asked.size, channels=asked.channels, target=target)
    runs = []
    timing = TimingOption(repeat=20, min_repeat_ms=2)
    with LocalBuilder() as builder, LocalRunner(timing=timing, threads=1) as runner:
        option = MeasureOption(builder=builder, runner=_FastestOf(runner))
        one_run("random", 10**6, task, option, 4)  # children start here
        for seed in asked.seeds:
            for name in asked.tuners:
                run = one_run(name, seed, task, option, asked.trials)
                runs.append(run)
                line = json.dumps(asdict(run))
                print(line, flush=True)
                if asked.json:
                    with asked.json.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")
    print_table(runs, asked.tuners)


def print_table(runs: list[Run], tuners: list[str]) -> None:
    reached = [c for c in CHECKPOINTS if all(c in run.gflops for run in runs)]
    columns = [f"GFLOPS at {c}" for c in reached]
    print("| tuner | " + " | ".join([*columns, "seconds", "build", "measure", "built", "failed"]) + " |")
    print("|---" * (len(columns) + 6) + "|")
    for name in tuners:
        of = [run for run in runs if run.tuner == name]
        cells = [f"{median(run.gflops[c] for run in of):.0f}" for c in reached]
        cells += [
            f"{median(getattr(run, key) for run in of):.1f}"
            for key in ("seconds", "build_sec", "measure_sec")
        ]
        cells += [f"{median(getattr(run, key) for run in of):.0f}" for key in ("candidates", "failures")]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
