"""Default schedules of stages without a reduction."""

from __future__ import annotations

import pytest
import tvm
from tvm import te

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule

AVX512 = parse_target("llvm -mcpu=skylake-avx512 -num-cores=1")


def code_of_repeated(times: int, columns: int) -> tuple[str, str]:
    """Return script and assembly of a kernel that reads each element of rows so many times in a row."""
    x = te.placeholder(int64_sizes((4, columns)), name="x")
    y = te.compute(int64_sizes((4, columns * times)), lambda i, j: x[i, j // times], name="y")
    func = default_schedule(te.create_prim_func([x, y]), AVX512)
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.tirx.build(module, target=tvm_target(AVX512))
    return func.script(), built.inspect_source("asm")


@pytest.mark.parametrize("times", [2, 4, 8])
def test_repeated_elements_are_loaded_once_and_shuffled(times: int) -> None:
    script, assembly = code_of_repeated(times, 32)
    assert "T.vectorized" in script
    assert "vperm" in assembly or "vbroadcast" in assembly
    assert "vgather" not in assembly


def test_rows_that_no_vector_divides_stay_as_they_were() -> None:
    script, _ = code_of_repeated(2, 7)
    assert "T.vectorized" not in script
