"""Default schedules, the first step: stages that need no loops of their own are computed where they are used."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tvm.s_tir.schedule import ScheduleError

from tunefarm_tuning.tvm.default_schedules.stage import Stage, stage_of

_REUSE = 1.5


def blocks_of(sch: Any) -> list[Any]:
    """Return the blocks of a kernel in program order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def inline_stages(sch: Any) -> None:
    """Compute element-wise stages within their consumers where that computes nothing costly twice."""
    for block in blocks_of(sch):
        stage = stage_of(sch, block)
        if stage is None or not stage.is_injective:
            continue
        consumers = list(sch.get_consumers(block))
        if not consumers or not all(_may_go_into(stage, stage_of(sch, one)) for one in consumers):
            continue
        if len(consumers) > 1 and stage.is_costly:
            continue
        with suppress(ScheduleError):
            sch.compute_inline(block)


def _may_go_into(stage: Stage, consumer: Stage | None) -> bool:
    if consumer is None:
        return False
    again = consumer.points / max(1, stage.points) > _REUSE
    if consumer.is_injective:
        return not (stage.is_costly and again)
    # A reduction reads an element many times, and its loops are made for plain reads.
    return stage.is_copy or not (again or stage.selects)
