"""Simulate, over recorded kernels, which way of choosing the next task reduces a model's latency soonest.

    python benchmarks/scheduling/simulate.py                # writes benchmarks/results/scheduling.md

A workload is one of `benchmarks/prior/trials.jsonl.xz` (about fifty trials of real kernels each). Its search space is
made up from these: thousands of configs whose throughput is drawn from the workload's own trials, spread a little, and
none of them much faster than the fastest that was ever measured of it. A search guesses throughputs with an error that
falls as it learns (``xgb``), or not at all (``random``), and each round tries what it guesses to be best. A model is a
draw of workloads with call counts. Nothing here says how good kernels get; it compares schedulers on equal draws.
A space ends near the best that was recorded of its own workload: that speaks against bounds by the bests of others
from the start.

Figures: latency over the latency after unlimited search, at multiples of the time that one round of every task takes;
geometric mean over models. Lower is better, 1.0 is the end.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from tunefarm_tuning.search.scheduler import RoundSummary, TaskScheduler, TaskState
from tunefarm_tuning.space.config_space import ConfigSpace

HERE = Path(__file__).resolve().parent
TRIALS = HERE.parent / "prior" / "trials.jsonl.xz"
RESULT = HERE.parent / "results" / "scheduling.md"
ROUND = 8
POOL = 3000
CHECKPOINTS = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A workload's trials: throughputs in operations per second, of those that worked."""

    name: str
    family: str
    flops: float
    throughputs: tuple[float, ...]


def recorded() -> list[Recorded]:
    tasks = []
    with lzma.open(TRIALS, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            space = ConfigSpace.from_json(row["space"])
            flops = 2.0 * math.prod(axis[0] for axis in row["space"]["computation"]["axes"])
            costs = [cost for _, cost in row["trials"] if cost]
            if len(costs) >= 30:
                tasks.append(
                    Recorded(
                        name=row["name"],
                        family=space.family,
                        flops=flops,
                        throughputs=tuple(flops / cost for cost in costs),
                    )
                )
    return tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyState(TaskState):
    """The state of a search, with the family of its workload."""

    family: str


class Search:
    """One task's search: a pool of configs, guesses that get better, rounds of the best guesses."""

    def __init__(self, workload: Recorded, weight: int, rng: np.random.Generator, *, kind: str) -> None:
        self.workload, self.weight = workload, weight
        logs = np.log(np.asarray(workload.throughputs))
        spread = rng.choice(logs, POOL) + rng.normal(0.0, 0.08, POOL)
        self.true = np.minimum(spread, logs.max() + np.abs(rng.normal(0.0, 0.06, POOL)))
        self._noise = rng.normal(0.0, logs.std() if kind == "xgb" else 1e6, POOL)
        self._untried = np.ones(POOL, dtype=bool)
        self.rounds: list[RoundSummary] = []
        self.spent_sec = 0.0
        self.best_sec: float | None = None
        # Building takes a while whatever the kernel; timing takes some repetitions.
        self.sec_per_trial = (
            0.12 + 30.0 * workload.flops / float(np.exp(np.median(logs))) + 0.05 * rng.random()
        )

    @property
    def end_sec(self) -> float:
        return self.workload.flops / float(np.exp(self.true.max()))

    def round(self) -> float:
        """Try the best guesses; return the seconds that it took."""
        error = 0.9 / (1.0 + len(self.rounds)) ** 0.5  # rank correlation about 0.75 at first
        guess = np.where(self._untried, self.true + error * self._noise, -np.inf)
        chosen = np.argpartition(-guess, ROUND)[:ROUND]
        self._untried[chosen] = False
        latency_sec = self.workload.flops / float(np.exp(self.true[chosen].max()))
        self.best_sec = latency_sec if self.best_sec is None else min(self.best_sec, latency_sec)
        self.rounds.append(RoundSummary(trials=ROUND, best_sec=self.best_sec))
        took = ROUND * self.sec_per_trial
        self.spent_sec += took
        return took

    @property
    def state(self) -> FamilyState:
        return FamilyState(
            weight=self.weight,
            flops=self.workload.flops,
            history=tuple(self.rounds),
            spent_sec=self.spent_sec,
            best_sec=self.best_sec,
            family=self.workload.family,
        )


Gain = Callable[[FamilyState, Sequence[FamilyState]], float]
"""The seconds of the model's latency that one more round of a task is expected to win."""


def _recent(state: FamilyState, window: int = 3) -> float:
    bests = [round_.best_sec for round_ in state.history[-window - 1 :] if round_.best_sec is not None]
    return max((bests[0] - bests[-1]) / (len(bests) - 1), 0.0) if len(bests) > 1 else 0.0


def fading(recent: float, power: float = 1.0) -> Gain:
    def gain(state: FamilyState, states: Sequence[FamilyState]) -> float:  # noqa: ARG001
        assert state.best_sec is not None
        fading_sec = state.best_sec / float(len(state.history) ** power)
        return recent * _recent(state) + (1 - recent) * fading_sec

    return gain


def _reachable_sec(
    state: FamilyState, states: Sequence[FamilyState], reach: float, *, by_family: bool
) -> float:
    """Return the cost at `reach` times the best throughput seen in the family (or in the model)."""
    fastest = max(
        other.flops / other.best_sec
        for other in states
        if other.best_sec is not None and (not by_family or other.family == state.family)
    )
    return float(state.flops / (reach * fastest))


def capped(reach: float, *, by_family: bool = True) -> Gain:
    """Ansor's similarity term: no task is expected to do better than similar tasks did."""

    def gain(state: FamilyState, states: Sequence[FamilyState]) -> float:
        assert state.best_sec is not None
        room = max(state.best_sec - _reachable_sec(state, states, reach, by_family=by_family), 0.0)
        forecast = min(state.best_sec / len(state.history), room)
        return 0.2 * _recent(state) + 0.8 * forecast

    return gain


def headroom(reach: float, *, by_family: bool = True, recent: float = 0.2, floor: float = 0.02) -> Gain:
    """Forecast by the room for improvement over the rounds, instead of by the cost over the rounds."""

    def gain(state: FamilyState, states: Sequence[FamilyState]) -> float:
        assert state.best_sec is not None
        room = state.best_sec - _reachable_sec(state, states, reach, by_family=by_family)
        room = max(room, floor * state.best_sec)
        return recent * _recent(state) + (1 - recent) * room / len(state.history)

    return gain


VARIANTS: dict[str, Gain | None] = {
    "round robin": None,
    "most latency": lambda state, _: state.best_sec or 0.0,
    "present (0.2 recent, 0.8 best/rounds)": fading(0.2),
    "0.5 recent": fading(0.5),
    "0.8 recent": fading(0.8),
    "fading as 1/rounds^1.5": fading(0.2, 1.5),
    "fading as 1/rounds^2": fading(0.2, 2.0),
    "capped at the family's best": capped(1.0),
    "capped at 2x the family's best (Ansor)": capped(2.0),
    "headroom to the family's best": headroom(1.0),
    "headroom to 1.2x the family's best": headroom(1.2),
    "headroom to the model's best": headroom(1.0, by_family=False),
    "headroom to the family's best, 0.5 recent": headroom(1.0, recent=0.5),
}


def pick(states: Sequence[FamilyState], gain: Gain | None) -> int:
    untouched = [i for i, state in enumerate(states) if not state.history]
    if untouched:
        return max(untouched, key=lambda i: (states[i].weight * states[i].flops, -i))
    if gain is None:
        return min(range(len(states)), key=lambda i: (len(states[i].history), i))

    def per_sec(i: int) -> float:
        state = states[i]
        return state.weight * gain(state, states) * len(state.history) / state.spent_sec

    return max(range(len(states)), key=lambda i: (per_sec(i), -i))


def run(model: Sequence[tuple[Recorded, int]], seed: int, kind: str, name: str) -> list[float]:
    """Return the model's latency over its final one, at each checkpoint."""
    searches = [
        Search(workload, weight, np.random.default_rng([seed, i]), kind=kind)
        for i, (workload, weight) in enumerate(model)
    ]
    end = sum(search.weight * search.end_sec for search in searches)
    warm_up_sec = sum(ROUND * search.sec_per_trial for search in searches)
    left = [warm_up_sec * times for times in CHECKPOINTS]
    spent, seen, scheduler = 0.0, [], TaskScheduler()
    while left:
        states = [search.state for search in searches]
        picked = scheduler.next(states) if name == "as shipped" else pick(states, VARIANTS[name])
        assert picked is not None
        before = [search.best_sec for search in searches]
        spent += searches[picked].round()
        while left and spent > left[0] * (1 + 1e-9):
            # The results of a round count from its end, not at a checkpoint within it.
            seen.append(
                sum(search.weight * (sec or 0.0) for search, sec in zip(searches, before, strict=True)) / end
            )
            left.pop(0)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    workloads = recorded()
    rng = np.random.default_rng(0)
    models = []
    for _ in range(args.models):
        chosen = rng.choice(len(workloads), int(rng.integers(8, 26)), replace=False)
        models.append([(workloads[i], int(rng.choice([1, 1, 1, 2, 2, 3, 6]))) for i in chosen])
    lines = ["# Which task next: simulated", ""]
    lines += [
        (
            f"Made by `python benchmarks/scheduling/simulate.py --models {args.models}`. See its head for what it is. "
            "A space ends near the best that was recorded of its own workload: that speaks against bounds by the bests of "
            "others from the start."
        ),
        "",
    ]
    for kind in ("xgb", "random"):
        head = " | ".join(f"{times:g}x" for times in CHECKPOINTS)
        lines += [f"## {kind}: latency over the final one, at multiples of the warm-up's time", ""]
        lines += [f"| Scheduler | {head} |", "|---|" + "---|" * len(CHECKPOINTS)]
        for name in ("as shipped", *VARIANTS):
            runs = [run(model, seed, kind, name) for seed, model in enumerate(models)]
            means = [math.exp(fmean(math.log(curve[i]) for curve in runs)) for i in range(len(CHECKPOINTS))]
            lines.append(f"| {name} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
            print(lines[-1], flush=True)
        lines.append("")
    args.out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
