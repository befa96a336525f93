"""Which of all that is on record a tuner is given: what is most like its task, and not too much of it.

A cost model learns from what it is given before every round, so the number of records is bounded. Within the bound,
the same workload comes first (measured on another target or device), then workloads of the same family, the nearest
in size first, then some of the rest. Of each, the fastest are taken, and an even spread of the others: a model that
has seen good configs alone cannot tell what makes them good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tunefarm_tuning.records.nearness import distance
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.selection import standing
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.space.config_space import ConfigSpace

MAX_RECORDS = 600
"""Records given to a tuner, over all histories."""

_SAME, _FAMILY, _OTHER = range(
    3
)  # what a history has in common with the task: its workload, its family, neither
_RECORDS_OF = {_SAME: 240, _FAMILY: 120, _OTHER: 40}  # of each history
_MAX_OTHERS = 4  # histories of workloads of another family
_FASTEST_SHARE = 0.5
_FAILED_SHARE = 0.15


def choose_histories(
    space: ConfigSpace, workload_key: str, known: Iterable[TaskHistory], *, limit: int = MAX_RECORDS
) -> tuple[TaskHistory, ...]:
    """Return the histories to learn from, the most alike first, each cut to its share of `limit` records.

    Deterministic: equal arguments in the same order give equal results.

    Args:
        space: Of the task that learns.
        workload_key: Likewise.
        known: Whatever there is; not the task's own records. Those without a usable record are left out.
        limit: How many records at most, over all histories.
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
    left, others = limit, 0
    for (kind, _distance), history in ranked:
        others += kind == _OTHER
        most = min(left, _RECORDS_OF[kind])
        if most < 1 or others > _MAX_OTHERS:
            break
        records = thinned(history.records, most)
        left -= len(records)
        chosen.append(replace(history, records=records))
    return tuple(chosen)


def thinned(records: Sequence[TuningRecord], most: int) -> tuple[TuningRecord, ...]:
    """Return at most `most` of the records, in their order: the fastest, a spread of the rest, a few failures."""
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


def _rank(space: ConfigSpace, workload_key: str, history: TaskHistory) -> tuple[int, float]:
    apart = distance(space.extents, history.space.extents)
    if history.records[0].workload_key == workload_key:
        return _SAME, 0.0 if history.space.key == space.key else 1.0
    if space.family and history.space.family == space.family:
        return _FAMILY, apart
    return _OTHER, apart


def _usable(history: TaskHistory) -> TaskHistory:
    """Return the history with what can be learned from: standing records that are points of its space."""
    records = tuple(r for r in standing(history.records) if r.space_key == history.space.key)
    return replace(history, records=records)


def _spread(items: Sequence[int], n: int) -> list[int]:
    """Return `n` of the items at even distances; all where there are no more."""
    if n >= len(items):
        return list(items)
    return [items[(2 * i + 1) * len(items) // (2 * n)] for i in range(n)]
