"""The curve of a job's best latency over time, reduced to as many points as a screen can show."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Json
from tunefarm_text.algorithms import kind_of_report
from tunefarm_text.job_terms import RUNTIMES
from tunefarm_text.quantities import tuned_kernels

MOST_POINTS = 600
RATE_STRETCHES = 5

_KEPT_JOBS = 64
_KEPT_POINTS = 20_000


@dataclass(frozen=True, slots=True)
class Point:
    """One change: after so many seconds of searching and so many trials, the kernels took so long."""

    tuned_sec: float
    trials: int
    latency_sec: float | None


@dataclass(frozen=True, slots=True)
class Network:
    """The whole network, timed with the kernels so far; all times in seconds."""

    tuned_sec: float
    trials: int
    latency_sec: float
    low_sec: float | None
    high_sec: float | None
    covered: int
    tasks: int


@dataclass(slots=True)
class Curve:
    """A job's curve up to event `seq`: only the points at which it changes, and the newest.

    Attributes:
        networks: The whole network, each time that the search timed it.
    """

    seq: int = 0
    points: list[Point] = field(default_factory=list)
    rounds: list[tuple[float, int]] = field(default_factory=list)
    networks: list[Network] = field(default_factory=list)

    def add(self, seq: int, data: Json) -> None:
        """Take in an event of a round, a confirmation or a timing of the network."""
        if "best_latency_sec" not in data and "latency_sec" in data:
            self.networks.append(
                Network(**{member.name: data.get(member.name) for member in fields(Network)})  # type: ignore[arg-type]
            )
            self.seq = seq
            return
        before = self.points[-1] if self.points else Point(0.0, 0, None)
        point = Point(
            float(data.get("tuned_sec") or before.tuned_sec),
            int(data.get("trials") or before.trials),
            data.get("best_latency_sec"),
        )
        # A point between two that are as high says nothing.
        if len(self.points) > 1 and self.points[-2].latency_sec == before.latency_sec == point.latency_sec:
            self.points[-1] = point
        else:
            self.points.append(point)
        self.rounds.append((point.tuned_sec, point.trials))
        self.seq = seq
        if len(self.points) > 2 * _KEPT_POINTS:
            self.points = thinned(self.points, _KEPT_POINTS)
        if len(self.rounds) > 2 * _KEPT_POINTS:
            self.rounds = self.rounds[::2]

    def rates(self) -> list[float]:
        """Return trials per second over the last stretches of the search, oldest first."""
        newest = self.rounds[-4 * RATE_STRETCHES :]
        step = max(len(newest) // RATE_STRETCHES, 1)
        ends = newest[::-step][::-1]
        return [
            (b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(ends) if b[0] > a[0] and b[1] > a[1]
        ]


class Curves:
    """The curves of the jobs that were looked at lately: of an earlier one only the new events are read.

    Concurrency: any thread. What is kept can be thrown away at any time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Curve] = OrderedDict()

    def of(self, repos: Repositories, job_id: str) -> Curve:
        """Return a job's curve as it is now."""
        with self._lock:
            curve = self._kept.setdefault(job_id, Curve())
            self._kept.move_to_end(job_id)
            while len(self._kept) > _KEPT_JOBS:
                self._kept.popitem(last=False)
            for seq, _at, data in repos.overview.curve(job_id, curve.seq):
                curve.add(seq, data)
            return Curve(curve.seq, list(curve.points), list(curve.rounds), list(curve.networks))


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most `most` of the points, spread evenly over the trials, with the first and the last."""
    if len(points) <= most:
        return list(points)
    first, last = points[0].trials, max(points[-1].trials, points[0].trials + 1)
    kept: dict[int, Point] = {}
    for point in points[1:-1]:
        # The last one of each stretch: the best so far.
        kept[(point.trials - first) * (most - 2) // (last - first)] = point
    return [points[0], *list(kept.values())[: most - 2], points[-1]]


def chart(
    curve: Curve,
    report: Mapping[str, Any] | None,
    earlier: Mapping[str, Any] | None = None,
    *,
    tuned_sec: float = 0.0,
    trials: int = 0,
) -> dict[str, Any]:
    """Return what the page's script draws; latencies in milliseconds.

    Args:
        curve: The job's.
        report: Of its artifact, where there is one. Of a job that searched, it gives the curve's first and last points.
        tuned_sec: Seconds of its search.
        trials: Its trials.
        earlier: Of an earlier job of the same network on the same devices: its baselines serve until there are own ones.
    """
    points = thinned([point for point in curve.points if point.latency_sec is not None], MOST_POINTS)
    return {
        "seq": curve.seq,
        "sec": [round(point.tuned_sec, 3) for point in points],
        "trials": [point.trials for point in points],
        "ms": [None if point.latency_sec is None else point.latency_sec * 1e3 for point in points],
        "networks": [
            {
                "sec": round(network.tuned_sec, 3),
                "trials": network.trials,
                "ms": network.latency_sec * 1e3,
                "low": None if network.low_sec is None else network.low_sec * 1e3,
                "high": None if network.high_sec is None else network.high_sec * 1e3,
                "tuned": tuned_kernels(network.covered, network.tasks),
            }
            for network in _with_ends(curve.networks, report, tuned_sec, trials)
        ],
        "baselines": baselines(report) or baselines(earlier, "in an earlier job"),
    }


def _with_ends(
    networks: Sequence[Network], report: Mapping[str, Any] | None, tuned_sec: float, trials: int
) -> list[Network]:
    """Return the measured networks of a job that searched, the untuned one before and its artifact after them."""
    latency = (report or {}).get("latency") or {}
    if not tuned_sec or not all(measured_sec(latency, name) for name in ("untuned", "tuned")):
        return list(networks)
    coverage = (report or {}).get("coverage") or {}
    tasks, covered = int(coverage.get("tasks", 0)), int(coverage.get("covered", 0))
    ends = (("untuned", 0.0, 0, 0), ("tuned", tuned_sec, trials, covered))
    first, last = (
        Network(
            tuned_sec=at_sec,
            trials=at_trials,
            latency_sec=measured_sec(latency, name) or 0.0,
            low_sec=None,
            high_sec=None,
            covered=kernels,
            tasks=tasks,
        )
        for name, at_sec, at_trials, kernels in ends
    )
    return [first, *networks, last]


def measured_sec(latency: Mapping[str, Any], name: str) -> float | None:
    """Return the median latency of a network in a report's ``latency``; None if it was not timed."""
    timing = latency.get(name)
    return timing.get("median_sec") or None if isinstance(timing, Mapping) else None


def baselines(report: Mapping[str, Any] | None, when: str = "measured") -> list[dict[str, Any]]:
    """Return the whole network's measured latencies; their names say when that was."""
    latency = (report or {}).get("latency") or {}
    names = {**RUNTIMES, "untuned": "untuned", "tuned": f"the artifact ({kind_of_report(report)})"}
    return [
        {"key": key, "name": f"{name}, {when}", "ms": sec * 1e3}
        for key, name in names.items()
        if (sec := measured_sec(latency, key)) is not None
    ]
