"""Stages of a kernel: what is known of their loops, and that inlining many of them is no more work for each."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any

import pytest
from tvm import te, tirx

from tunefarm_tuning.tvm.base.tir import schedule_of
from tunefarm_tuning.tvm.default_schedules.stage import (
    blocks_of,
    inline_stages,
    inlined_schedule,
    loops_of,
    stage_of,
)


def concatenation(parts: int) -> tirx.PrimFunc:
    """Slices of a tensor, joined in the opposite order."""
    x = te.placeholder((parts * 8, 16), name="x")

    def part(number: int) -> Any:
        return te.compute((8, 16), lambda i, j: x[(parts - 1 - number) * 8 + i, j], name=f"slice{number}")

    slices = [part(number) for number in range(parts)]

    def element(i: Any, j: Any) -> Any:
        chosen = slices[0][i, j]
        for number in range(1, parts):
            chosen = tirx.if_then_else(i >= number * 8, slices[number][i - number * 8, j], chosen)
        return chosen

    joined = te.compute((parts * 8, 16), element, name="joined")
    sums = te.compute((16,), lambda j: te.sum(joined[(k := te.reduce_axis((0, parts * 8))), j], k))
    return te.create_prim_func([x, sums])


def analyses(parts: int) -> int:
    """Return how many accesses are analysed while the slices are inlined."""
    profile = cProfile.Profile()
    sch = schedule_of(concatenation(parts))
    profile.runcall(inline_stages, sch)
    assert len(blocks_of(sch)) == 2
    counts: Any = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return sum(calls[0] for (_, _, name), calls in counts.items() if name == "access_of")


def test_the_loops_of_a_stage_are_known_without_what_it_reads() -> None:
    sch = schedule_of(concatenation(3))
    for block in blocks_of(sch):
        loops, stage = loops_of(sch, block), stage_of(sch, block)
        assert loops is not None
        assert stage is not None
        assert (loops.extents, loops.reduces, loops.points) == (stage.extents, stage.reduces, stage.points)
        assert loops.is_injective == stage.is_injective


@pytest.mark.parametrize("parts", [2, 16])
def test_a_kernel_of_slices_becomes_one_stage_before_the_sum(parts: int) -> None:
    assert len(blocks_of(inlined_schedule(concatenation(parts)))) == 2


@pytest.mark.exhaustive
def test_twice_as_many_slices_need_twice_as_many_analyses() -> None:
    """A concatenation that was analysed again for each of its inputs made the compile quadratic."""
    assert analyses(32) - analyses(16) == analyses(24) - analyses(8)
    assert analyses(32) < 4 * 32 + 40
