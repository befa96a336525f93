"""A config in words."""

from __future__ import annotations

from tunefarm_api.web.jobs.schedule import KnobLine, schedule_lines
from tunefarm_db.values import Space


def test_a_schedule_in_words() -> None:
    space = Space(
        workload_key="w",
        target_key="t",
        toolchain="c",
        space_key="k",
        family=None,
        extents=[],
        space={"sketches": [[["tile", "i", 64, 3, 64], ["categorical", "unroll", [0, 16], []], ["location", "fuse", [-1, 2]]]]},
    )  # fmt: skip
    config = [0, [[4, 2, 8], 1, -1]]
    assert schedule_lines(config, space, "k") == [
        KnobLine(knob="i: split 64 into", decision="4 × 2 × 8"),
        KnobLine(knob="unroll", decision="16"),
        KnobLine(knob="fuse: computed", decision="at the root"),
    ]
    assert [line.knob for line in schedule_lines(config, space, "another")] == ["knob 1", "knob 2", "knob 3"]
    assert [line.decision for line in schedule_lines([5, [[2, 1]]], space, "k")] == ["2 × 1"]
    assert schedule_lines([0, []], None, "k") == []
