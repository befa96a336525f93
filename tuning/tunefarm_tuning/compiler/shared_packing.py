"""Records whose kernels share packed weights: of records that are about as fast, one that takes its weights as others do.

A weight is stored once for each order in which kernels take it. The kernels of a network in several sets of shapes take the same weights, so
the kernels that matter most choose the orders, and the others follow where that costs nearly nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tunefarm_tuning.compiler.session import CompileSession, KernelInfo
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord

_RATIO = 1.02
"""How many times the best record's cost a record may have that shares a packed weight."""
_TRIED = 6
"""Records of a task that are tried."""


def with_shared_packing(
    records: Mapping[str, TuningRecord],
    tasks: Iterable[KernelInfo],
    history: History,
    compiler: CompileSession,
) -> dict[str, TuningRecord]:
    """Return records by workload key, some replaced by about equally fast ones that share their packed weights.

    Args:
        records: The best records by workload key.
        tasks: The tasks.
        history: Has the other records.
        compiler: Has loaded the network.
    """
    chosen = dict(records)
    orders: dict[str, set[str]] = {}
    known = [task for task in tasks if task.workload_key in records]
    for task in sorted(known, key=lambda task: -task.weight * (records[task.workload_key].cost_sec or 0.0)):
        best = records[task.workload_key]
        taken: dict[str, str] = {}
        for record in [best, *history.near_best(best, ratio=_RATIO, most=_TRIED)]:
            try:
                packing = compiler.packings(task.name, record)
            except ChildClosed:
                raise
            except (InvalidInputError, ChildFailed):  # its own check will say why
                continue
            taken = taken or packing
            if all(not orders.get(weight) or order in orders[weight] for weight, order in packing.items()):
                chosen[task.workload_key], taken = record, packing
                break
        for weight, order in taken.items():
            orders.setdefault(weight, set()).add(order)
    return chosen
