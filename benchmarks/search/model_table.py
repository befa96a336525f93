"""Make the tables of `model` from its lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.search.markdown import table
from benchmarks.search.split import HEAD, split_cells

MARKS_MIN = (0.5, 1, 2, 4, 8, 12, 16)
WITHIN = (0.10, 0.05, 0.02)
SIDES = ("cold", "half", "all")
NOTE = (
    "Latency is the sum over all tasks of calls × cost of the kernel that the run would have named then. All kernels of a model "
    "and seed were timed again, in turn, after the runs: those costs are compared, not what each run saw. Medians over seeds."
)


@dataclass(frozen=True, kw_only=True)
class ModelRun:
    """One run, with the costs of the common timing.

    Attributes:
        side: Whose records it was given: nobody's (``cold``), of half of the tasks, of ``all``.
        curve: ``(seconds, latency)`` whenever the named kernels changed; it may rise, where the run was mistaken.
        known_share: The share of the final latency that tasks with records have.
        left_out: Tasks without a working kernel in some run of the model and seed: they are in no latency.
    """

    model: str
    seed: int
    side: str
    wall_sec: float
    num_trials: int
    curve: tuple[tuple[float, float], ...]
    seen_sec: float | None
    known_share: float
    left_out: int
    split_sec: Mapping[str, float]

    @property
    def final_sec(self) -> float | None:
        return self.curve[-1][1] if self.curve else None

    def latency_at(self, sec: float) -> float | None:
        """Return the latency after a number of seconds; None if a task had no kernel yet, or the run had stopped."""
        latencies = [latency for at, latency in self.curve if at <= sec]
        return latencies[-1] if latencies and self.wall_sec >= sec else None

    def seconds_to(self, latency_sec: float) -> float | None:
        """Return when it first was as good as that; None if it never was."""
        return next((at for at, latency in self.curve if latency <= latency_sec), None)


def model_runs(lines: Iterable[dict[str, Any]]) -> list[ModelRun]:
    """Return the runs whose kernels were timed at the end; the last timing of a model and seed counts."""
    lines = list(lines)
    costs = {(line["model"], line["seed"]): line["costs_sec"] for line in lines if line["kind"] == "timing"}
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in lines:
        if line["kind"] == "run" and (line["model"], line["seed"]) in costs:
            groups.setdefault((line["model"], line["seed"]), []).append(line)
    return [run for key, group in groups.items() for run in _runs_of(group, costs[key])]


def _runs_of(group: Sequence[dict[str, Any]], costs_sec: Mapping[str, float]) -> list[ModelRun]:
    weights = {task["workload"]: task["weight"] for task in group[0]["tasks"]}
    costs_sec = {**_unkept(group, costs_sec), **costs_sec}
    working = [{i["workload"] for i in line["incumbents"] if i["kernel"] in costs_sec} for line in group]
    common = set.intersection(*working)
    runs = []
    for line in group:
        named: dict[str, float] = {}
        curve: list[tuple[float, float]] = []
        for incumbent in line["incumbents"]:
            if incumbent["workload"] not in common or incumbent["kernel"] not in costs_sec:
                continue
            named[incumbent["workload"]] = costs_sec[incumbent["kernel"]]
            if len(named) == len(common):
                latency_sec = sum(weights[workload] * sec for workload, sec in named.items())
                if curve and curve[-1][0] == incumbent["sec"]:
                    curve.pop()
                curve.append((incumbent["sec"], latency_sec))
        known = sum(weights[w] * named[w] for w in line["known"] if w in named)
        runs.append(
            ModelRun(
                model=line["model"],
                seed=line["seed"],
                side=line["side"],
                wall_sec=line["wall_sec"],
                num_trials=line["num_trials"],
                curve=tuple(curve),
                seen_sec=line["latency_sec"],
                known_share=known / curve[-1][1] if curve else 0.0,
                left_out=len(weights) - len(common),
                split_sec=line["split_sec"],
            )
        )
    return runs


def _unkept(group: Sequence[dict[str, Any]], costs_sec: Mapping[str, float]) -> dict[str, float]:
    """Return costs of recorded kernels that were not kept, and so could not be timed again.

    A confirmation may name a kernel that was never the best when it was measured. It counts as the last that was, in
    the cold run: the confirmation found them alike.
    """
    cold = next((line for line in group if line["side"] == "cold"), None)
    if cold is None:
        return {}
    last = {i["workload"]: costs_sec[i["kernel"]] for i in cold["incumbents"] if i["kernel"] in costs_sec}
    return {
        incumbent["kernel"]: last[incumbent["workload"]]
        for line in group
        for incumbent in line["incumbents"]
        if incumbent["trials"] == 0
        and incumbent["workload"] in line["known"]
        and incumbent["workload"] in last
    }


def make_table(lines: Sequence[dict[str, Any]]) -> str:
    """Return all tables, as Markdown."""
    runs = model_runs(lines)
    machine = next((line for line in lines if line["kind"] == "machine"), None)
    if not runs or machine is None:
        return "no run has ended yet"
    seeds = sorted({run.seed for run in runs})
    parts = [f"{machine['target']}, {machine['toolchain']}; {machine['cores']} core(s); seeds {seeds}.", NOTE]
    if left_out := {run.model: run.left_out for run in runs if run.left_out}:
        parts.append(f"Tasks without a kernel, left out: {left_out}.")
    parts += ["## Latency over time, from nothing", _cold(runs)]
    if any(run.side != "cold" for run in runs):
        parts += ["## With the records of the cold run", _warm(runs)]
    parts += ["## Where the seconds go", _split(runs)]
    if any(line["kind"] == "compile" for line in lines):
        parts += ["## The compiled model, one inference", _compiled(lines)]
    return "\n\n".join(parts)


def _cold(runs: Sequence[ModelRun]) -> str:
    rows = []
    cold = [run for run in runs if run.side == "cold" and run.final_sec]
    longest = max((run.wall_sec for run in cold), default=0.0) / 60
    marks = [mark for mark in MARKS_MIN if mark < longest]
    for model in _models(cold):
        of = [run for run in cold if run.model == model]
        at = [[run.latency_at(60 * mark) for run in of] for mark in marks]
        within = [[run.seconds_to((run.final_sec or 0.0) * (1 + share)) for run in of] for share in WITHIN]
        rows.append(
            [
                model,
                f"{median(run.num_trials for run in of):.0f}",
                *map(_ms, at),
                f"{_ms([run.final_sec for run in of])} ({_ms([run.seen_sec for run in of])})",
                *map(_seconds, within),
            ]
        )
    head = [
        "model",
        "trials",
        *(f"ms after {mark:g} min" for mark in marks),
        "ms at the end (as the run saw it)",
        *(f"s to within {100 * share:.0f} %" for share in WITHIN),
    ]
    return table(head, rows)


def _warm(runs: Sequence[ModelRun]) -> str:
    cold = {(run.model, run.seed): run for run in runs if run.side == "cold" and run.final_sec}
    rows = []
    for model in _models(runs):
        for side in SIDES[1:]:
            pairs = [
                (run, cold[run.model, run.seed])
                for run in runs
                if (run.model, run.side) == (model, side) and (run.model, run.seed) in cold and run.curve
            ]
            if not pairs:
                continue
            rows.append(
                [
                    model,
                    side,
                    f"{100 * median(run.known_share for run, _ in pairs):.0f} %",
                    *(_against(pairs, share) for share in (*WITHIN, 0.0)),
                    f"{_ms([run.final_sec for run, _ in pairs])} after {_seconds([run.wall_sec for run, _ in pairs])} s",
                    _ms([other.final_sec for _, other in pairs]),
                ]
            )
    note = (
        "Seconds to the latency that the cold run of the same seed ended with, and to within some per cent of it / the cold run's own "
        "seconds to the same latency = ratio. A run with records counts them once its first round is over, and was ended "
        "early when it saw that it was there."
    )
    head = [
        "model",
        "records of",
        "their share of the time",
        *(f"to within {100 * share:.0f} %" for share in WITHIN),
        "to the end itself",
        "ms at its end",
        "cold",
    ]
    return note + "\n\n" + table(head, rows)


def _against(pairs: Sequence[tuple[ModelRun, ModelRun]], share: float) -> str:
    goals = [(run, other, (other.final_sec or 0.0) * (1 + share)) for run, other in pairs]
    own = [other.seconds_to(goal) for _, other, goal in goals]
    warm = [run.seconds_to(goal) for run, _, goal in goals]
    ratios = [w / c for w, c in zip(warm, own, strict=True) if w is not None and c]
    reached = f", {len(ratios)}/{len(goals)}" if len(ratios) < len(goals) else ""
    ratio = f" = {median(ratios):.3f}" if ratios else ""
    return f"{_seconds(warm)} / {_seconds(own)}{ratio}{reached}"


def _split(runs: Sequence[ModelRun]) -> str:
    rows = []
    for model in _models(runs):
        for side in SIDES:
            of = [(run.wall_sec, run.split_sec) for run in runs if (run.model, run.side) == (model, side)]
            if of:
                rows.append([model, side, *split_cells(of)])
    return "Per cent of the wall-clock, over all seeds.\n\n" + table(["model", "records of", *HEAD], rows)


def _compiled(lines: Sequence[dict[str, Any]]) -> str:
    compiled = [line for line in lines if line["kind"] == "compile"]
    rows = []
    for model in dict.fromkeys(line["model"] for line in compiled):
        of = [line for line in compiled if line["model"] == model]
        kinds = ("untuned", "tuned", "onnxruntime")
        cells = [_ms([line["latency_sec"].get(kind) for line in of]) for kind in kinds]
        ratios = [
            line["latency_sec"]["onnxruntime"] / line["latency_sec"]["tuned"]
            for line in of
            if line["latency_sec"].get("onnxruntime")
        ]
        rows.append([model, *cells, f"{median(ratios):.2f}×" if ratios else "–"])
    note = "Of the cold runs; timed end to end by `compile`, on as many threads as cores were tuned for."
    head = ["model", "untuned ms", "tuned ms", "ONNX Runtime ms", "times as fast as ONNX Runtime"]
    return note + "\n\n" + table(head, rows)


def _models(runs: Sequence[ModelRun]) -> list[str]:
    return list(dict.fromkeys(run.model for run in runs))


def _ms(seconds: Sequence[float | None]) -> str:
    known = [sec for sec in seconds if sec is not None]
    return f"{1e3 * median(known):.2f}" if known else "–"


def _seconds(seconds: Sequence[float | None]) -> str:
    """Return the median; where that is a run that never got there, say so."""
    middle = median(sec if sec is not None else float("inf") for sec in seconds)
    return "never" if middle == float("inf") else f"{middle:.1f}"
