"""Of records that are about as fast, one is taken whose kernel shares packed weights with a kernel that matters more."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from tuning_records import RECORD

from tunefarm_tuning.compiler.session import CompileSession, KernelInfo
from tunefarm_tuning.compiler.shared_packing import with_shared_packing
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config


@dataclass
class Orders:
    """Stands in for the compiler: a config's number is the order in which its kernel takes the one weight."""

    asked: list[tuple[str, int]] = field(default_factory=list)

    def packings(self, name: str, record: TuningRecord) -> dict[str, str]:
        self.asked.append((name, record.config.sketch))
        if record.config.sketch == 9:
            raise InvalidInputError("no such space", code="space-changed")
        return {"weight": str(record.config.sketch)}


def task(key: str) -> KernelInfo:
    return KernelInfo(workload_key=key, names=(key,), weight=1, args=())


def timed(key: str, order: int, cost_sec: float) -> TuningRecord:
    return replace(RECORD, workload_key=key, config=Config(order, ()), samples_sec=(cost_sec,))


def chosen(*records: TuningRecord) -> dict[str, int]:
    history = History(records)
    best = {record.workload_key: record for record in history.records}
    session = cast("CompileSession", Orders())
    tasks = [task(key) for key in best]
    return {
        key: record.config.sketch
        for key, record in with_shared_packing(best, tasks, history, session).items()
    }


def test_a_smaller_kernel_takes_the_order_of_a_larger_one_if_it_costs_nearly_nothing() -> None:
    assert chosen(timed("small", 1, 1e-3), timed("small", 2, 1.01e-3), timed("large", 2, 9e-3)) == {
        "small": 2,
        "large": 2,
    }


def test_it_keeps_its_best_record_if_sharing_costs_more() -> None:
    assert chosen(timed("small", 1, 1e-3), timed("small", 2, 1.05e-3), timed("large", 2, 9e-3)) == {
        "small": 1,
        "large": 2,
    }


def test_a_third_kernel_may_share_either_order() -> None:
    assert chosen(
        timed("large", 2, 9e-3), timed("middle", 1, 3e-3), timed("small", 3, 1e-3), timed("small", 1, 1.01e-3)
    ) == {"large": 2, "middle": 1, "small": 1}


def test_a_record_that_does_not_apply_is_left_to_its_own_check() -> None:
    assert chosen(timed("large", 9, 9e-3), timed("small", 1, 1e-3)) == {"large": 9, "small": 1}
