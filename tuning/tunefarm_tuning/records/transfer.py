"""Transfer between tasks: choose the records of other tasks that a tuner learns from.

A cost model learns from all its records before every round, so their number is bounded. The same workload
comes first (measured on another target or device), then workloads of the same family, the nearest in size first, then a
few of other families. Of every history the fastest records are taken, and an even spread of the others: a model that has
seen only good configs cannot tell what makes them good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, log2
from typing import TYPE_CHECKING

from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.selection import without_superseded

if TYPE_CHECKING:  # the API imports this module, and has no numpy
    from tunefarm_tuning.space.config_space import ConfigSpace

MAX_RECORDS = 600
"""Records given to a tuner, over all histories."""

_SAME_WORKLOAD, _SAME_FAMILY, _OTHER_FAMILY = range(3)
"""Kinds of similarity between a history and the task, the closest first."""
_MAX_RECORDS_PER_HISTORY = {_SAME_WORKLOAD: 240, _SAME_FAMILY: 120, _OTHER_FAMILY: 40}
_MAX_OTHER_FAMILIES = 4  # histories
_FASTEST_SHARE = 0.5
_FAILED_SHARE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHistory:
    """Records of one workload on one target and device model, whose times are comparable.

    Attributes:
        space: Space of the records' configs. Records of another space are ignored.
        records: The records, failed trials among them, in any order.
    """

    space: ConfigSpace
    records: tuple[TuningRecord, ...]


def choose_histories(
    space: ConfigSpace, workload_key: str, known: Iterable[TaskHistory], *, limit: int = MAX_RECORDS
) -> tuple[TaskHistory, ...]:
    """Return the histories to learn from, the most similar first, each cut to its share of `limit` records.

    Deterministic: equal arguments in the same order give equal results.

    Args:
        space: The space of the task that learns.
        workload_key: The workload of the task that learns.
        known: The histories to choose from, without the task's own records. Those without a usable record are left out.
        limit: The most records over all returned histories.
    """
    ranked = sorted(
        (
            (_rank(space, workload_key, history), history)
            for history in map(_usable, known)
            if history.records
        ),
        key=lambda entry: entry[0],
    )
    chosen: list[TaskHistory] = []
    remaining, other_families = limit, 0
    for (likeness, _distance), history in ranked:
        other_families += likeness == _OTHER_FAMILY
        most = min(remaining, _MAX_RECORDS_PER_HISTORY[likeness])
        if most < 1 or other_families > _MAX_OTHER_FAMILIES:
            break
        records = thin_out(history.records, most)
        remaining -= len(records)
        chosen.append(replace(history, records=records))
    return tuple(chosen)


def thin_out(records: Sequence[TuningRecord], most: int) -> tuple[TuningRecord, ...]:
    """Return at most `most` of the records, in their order: the fastest, an even sample of the others, a few failures."""
    if len(records) <= most:
        return tuple(records)
    costs = [record.cost_sec for record in records]
    works = sorted((i for i, cost in enumerate(costs) if cost is not None), key=lambda i: (costs[i], i))
    fails = [i for i, cost in enumerate(costs) if cost is None]
    num_fails = min(len(fails), max(int(most * _FAILED_SHARE), most - len(works)))
    num_works = most - num_fails
    num_fastest = min(len(works), max(1, int(num_works * _FASTEST_SHARE))) if num_works else 0
    kept = {
        *works[:num_fastest],
        *_spread(works[num_fastest:], num_works - num_fastest),
        *_spread(fails, num_fails),
    }
    return tuple(records[i] for i in sorted(kept))


def distance(extents: Sequence[int], other_extents: Sequence[int]) -> float:
    """Return the distance of two computations in size: doublings of extents, summed over the axes.

    Infinite if the computations have different numbers of axes.
    """
    if len(extents) != len(other_extents):
        return inf
    return sum(abs(log2(max(a, 1)) - log2(max(b, 1))) for a, b in zip(extents, other_extents, strict=True))


def _rank(space: ConfigSpace, workload_key: str, history: TaskHistory) -> tuple[int, float]:
    apart = distance(space.extents, history.space.extents)
    if history.records[0].workload_key == workload_key:
        return _SAME_WORKLOAD, 0.0 if history.space.key == space.key else 1.0
    if space.family and history.space.family == space.family:
        return _SAME_FAMILY, apart
    return _OTHER_FAMILY, apart


def _usable(history: TaskHistory) -> TaskHistory:
    """Return the history with its usable records: not superseded, and points of its space."""
    records = tuple(
        record for record in without_superseded(history.records) if record.space_key == history.space.key
    )
    return replace(history, records=records)


def _spread(items: Sequence[int], n: int) -> list[int]:
    """Return `n` of the items at even distances; all if there are fewer."""
    if n >= len(items):
        return list(items)
    return [items[(2 * i + 1) * len(items) // (2 * n)] for i in range(n)]
