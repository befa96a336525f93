"""Make the tables of `compare` from its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Any

from benchmarks.search.markdown import table
from benchmarks.search.split import HEAD, split_cells

CHECKPOINTS = (16, 32, 64, 128)


@dataclass(frozen=True, kw_only=True)
class SideRun:
    """One side's run on one task and seed, with the costs of the common timing at the end.

    Attributes:
        incumbents: ``(seconds, trials, cost)`` of each kernel that was the best so far.
    """

    task: str
    flops: float
    seed: int
    side: str
    wall_sec: float
    num_trials: int
    num_failures: int
    incumbents: tuple[tuple[float, int, float], ...]
    split_sec: dict[str, float]

    @property
    def final_sec(self) -> float | None:
        """Cost of the kernel that the side names at its end."""
        return self.incumbents[-1][2] if self.incumbents else None

    def cost_at(self, trials: int) -> float | None:
        """Return the cost of the best kernel after some trials; None if there was none, or the run stopped before."""
        costs = [cost for _, count, cost in self.incumbents if count <= trials]
        return costs[-1] if costs and self.num_trials >= trials else None

    def seconds_to(self, cost_sec: float) -> float | None:
        """Return the seconds until a kernel was as good as the cost; None if none was."""
        return next((sec for sec, _, cost in self.incumbents if cost <= cost_sec), None)


def side_runs(lines: Iterable[dict[str, Any]]) -> list[SideRun]:
    """Return the runs whose kernels were timed at the end; the last timing of a task and seed counts."""
    lines = list(lines)
    costs = {
        (line["workload"], line["seed"]): line["costs_sec"] for line in lines if line["kind"] == "timing"
    }
    return [
        SideRun(
            task=line["task"],
            flops=line["flops"],
            seed=line["seed"],
            side=line["side"],
            wall_sec=line["wall_sec"],
            num_trials=len(line["trials"]),
            num_failures=len(line["failures"]),
            incumbents=tuple(
                (incumbent["sec"], incumbent["trials"], timed[incumbent["kernel"]])
                for incumbent in line["incumbents"]
                if incumbent["kernel"] in timed
            ),
            split_sec=line["split_sec"],
        )
        for line in lines
        if line["kind"] == "run" and (timed := costs.get((line["workload"], line["seed"]))) is not None
    ]


def make_table(lines: Sequence[dict[str, Any]]) -> str:
    """Return all tables, as Markdown."""
    runs = side_runs(lines)
    machines = [line for line in lines if line["kind"] == "machine"]
    if not runs or not machines:
        return "nothing has been compared yet"
    machine = machines[0]
    peak = max(line["peak"]["fastest_gflops"] for line in machines)
    sides = sorted({run.side for run in runs}, key=lambda side: (side != "stock", side))
    ours = [side for side in sides if side != "stock"]
    seeds = sorted({run.seed for run in runs})
    parts = [
        f"{machine['target']}, {machine['toolchain']}; peak of a core {peak:.0f} GFLOP/s; seeds {seeds}.",
    ]
    if "stock" in sides and ours:
        parts += ["## Seconds until stock's own best is reached", _to_stock(runs, ours)]
    parts += ["## Best throughput after so many trials, GFLOP/s", _throughput(runs, sides, peak)]
    if "stock" in sides and ours:
        parts += ["## Throughput against stock's at 64 trials", _against_stock(runs, ours)]
    parts += ["## Where the seconds go", _split(runs, sides)]
    return "\n\n".join(parts)


def _to_stock(runs: Sequence[SideRun], ours: Sequence[str]) -> str:
    stock = {(run.task, run.seed): run for run in runs if run.side == "stock" and run.incumbents}
    ratios: dict[str, list[float]] = {side: [] for side in ours}
    careful: dict[str, list[float]] = {side: [] for side in ours}
    rows = []
    for task in _tasks(runs):
        cells = []
        bests = [(run.incumbents[-1][0], run) for (name, _), run in stock.items() if name == task]
        if not bests:
            continue
        for side in ours:
            seconds, of_task = [], []
            for run in (run for run in runs if (run.task, run.side) == (task, side)):
                if (other := stock.get((task, run.seed))) is None:
                    continue
                needed = run.seconds_to(other.final_sec or 0.0)
                stock_sec = other.incumbents[-1][0]
                careful[side].append(stock_sec / needed if needed else min(1.0, stock_sec / run.wall_sec))
                if needed:
                    seconds.append(needed)
                    of_task.append(stock_sec / needed)
                else:
                    seconds.append(float("inf"))
            ratios[side] += of_task
            cells.append(
                f"{_seconds(median(seconds))} ({_geometric(of_task)}, {len(of_task)}/{len(seconds)})"
                if seconds
                else "–"
            )
        gflops = median(run.flops / (run.final_sec or 1.0) / 1e9 for _, run in bests)
        rows.append([task, f"{gflops:.0f}", f"{median(sec for sec, _ in bests):.1f}", *cells])
    rows.append(
        [
            "**geometric mean, where reached**",
            "",
            "",
            *(f"**{_geometric(ratios[side])}** ({len(ratios[side])}/{len(careful[side])})" for side in ours),
        ]
    )
    rows.append(["the same, 1× where not reached", "", "", *(_geometric(careful[side]) for side in ours)])
    note = "Median seconds (how many times sooner than stock, geometric mean; seeds that reached it)."
    return note + "\n\n" + table(["task", "stock GFLOP/s", "stock s", *ours], rows)


def _throughput(runs: Sequence[SideRun], sides: Sequence[str], peak: float) -> str:
    rows = []
    for task in _tasks(runs):
        for side in sides:
            of = [run for run in runs if (run.task, run.side) == (task, side)]
            if not of:
                continue
            at = [_median_rate(of, lambda run, n=n: run.cost_at(n)) for n in CHECKPOINTS]
            final = _median_rate(of, lambda run: run.final_sec)
            rows.append(
                [
                    task,
                    side,
                    *(f"{rate:.0f}" if rate else "–" for rate in at),
                    f"{100 * final / peak:.0f} %" if final else "–",
                    f"{median(run.wall_sec for run in of):.1f}",
                    f"{median(run.num_trials for run in of):.0f}",
                    f"{median(run.num_failures for run in of):.0f}",
                ]
            )
    head = ["task", "side", *map(str, CHECKPOINTS), "of peak, at the end", "seconds", "trials", "failed"]
    return table(head, rows)


def _against_stock(runs: Sequence[SideRun], ours: Sequence[str]) -> str:
    stock = {(run.task, run.seed): run.final_sec for run in runs if run.side == "stock" and run.final_sec}
    rows = []
    for side in ours:
        cells = []
        for n in CHECKPOINTS:
            ratios = [
                best / cost
                for run in runs
                if run.side == side
                and (best := stock.get((run.task, run.seed))) is not None
                and (cost := run.cost_at(n)) is not None
            ]
            cells.append(_geometric(ratios))
        rows.append([side, *cells])
    return table(["side", *(f"at {n}" for n in CHECKPOINTS)], rows)


def _split(runs: Sequence[SideRun], sides: Sequence[str]) -> str:
    rows = []
    for side in sides:
        of = [(run.wall_sec, run.split_sec) for run in runs if run.side == side]
        rows.append([side, *split_cells(of)])
    note = (
        "Per cent of the wall-clock, over all tasks and seeds. Stock's applying is within its proposing. "
        "What overlaps counts twice, and is taken off the wait."
    )
    return note + "\n\n" + table(["side", *HEAD], rows)


def _tasks(runs: Sequence[SideRun]) -> list[str]:
    return list(dict.fromkeys(run.task for run in runs))


def _median_rate(runs: Sequence[SideRun], cost: Callable[[SideRun], float | None]) -> float | None:
    rates = [run.flops / sec / 1e9 for run in runs if (sec := cost(run)) is not None]
    return median(rates) if rates else None


def _geometric(ratios: Sequence[float]) -> str:
    return f"{exp(sum(map(log, ratios)) / len(ratios)):.2f}×" if ratios else "–"


def _seconds(sec: float) -> str:
    return "never" if sec == float("inf") else f"{sec:.1f}"
