"""Vector loads of nearby elements in another order: at once, and never beyond the tensor."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import te
from tvm.s_tir import Schedule
from tvm.script import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target

TARGETS = ["llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4", "raspberry-pi/4b-aarch64"]
HOST = "host"
_LINE_BYTES = 64
_PROT_NONE = 0

IndexOf = Callable[[Any], Any]


def kernel(extent: int, index_of: IndexOf, result: int, lanes: int, dtype: str = "float32") -> tvm.IRModule:
    """Return ``out[i] = x[index_of(i)]``, in vectors of some lanes."""
    x = te.placeholder((extent,), dtype, name="x")
    func = te.create_prim_func([x, te.compute((result,), lambda i: x[index_of(i)], name="out")])
    schedule = Schedule(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    (loop,) = schedule.get_loops(schedule.get_sblock("out"))
    outer, inner = schedule.split(loop, [None, lanes])
    schedule.unroll(outer)
    schedule.vectorize(inner)
    return schedule.mod


def built(module: tvm.IRModule, target: str) -> Any:
    return tvm.tirx.build(module, tvm_target(parse_target(target)))


def at_the_end_of_a_page(values: NDArray[Any]) -> tuple[NDArray[Any], mmap.mmap]:
    """Return a copy of whole lines (as tensors begin) that ends where no memory can be read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + page), page, _PROT_NONE) == 0
    begin = page - -(-values.nbytes // _LINE_BYTES) * _LINE_BYTES
    copy = np.frombuffer(memory, values.dtype, values.size, begin)
    copy[:] = values
    return copy, memory


PATTERNS: dict[str, tuple[int, int, int, IndexOf]] = {
    # elements, results, lanes, where
    "groups of four, the third of each": (64, 64, 16, lambda i: i // 4 * 4 + 2),
    "groups of eight": (64, 64, 16, lambda i: i // 8 * 8 + 7),
    "two of each": (32, 64, 16, lambda i: i // 2),
    "backwards in fours": (64, 64, 8, lambda i: i // 4 * 4 + 3 - i % 4),
    "over two vectors": (64, 32, 8, lambda i: i // 4 * 8 + i % 4 + 2),
    "again after eight": (64, 64, 16, lambda i: i % 8 + i // 16 * 16),
    "twelve lanes": (64, 36, 12, lambda i: i // 2),
    "three lanes": (64, 36, 3, lambda i: i // 2),
    "a tail that fills no vector": (61, 60, 4, lambda i: i // 4 * 4 + 4 - i % 4),
    "not aligned": (67, 64, 16, lambda i: i // 4 * 4 + 3),
    "the end of what is no whole number of vectors": (66, 64, 16, lambda i: i // 4 * 4 + 5),
}
OUTSIDE = ["not aligned", "the end of what is no whole number of vectors"]
SHUFFLED = [name for name in PATTERNS if name not in (*OUTSIDE, "three lanes", "a tail that fills no vector")]


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "int64", "bool"])
@pytest.mark.parametrize("name", PATTERNS)
def test_the_elements_are_the_same(name: str, dtype: str) -> None:
    extent, result, lanes, index_of = PATTERNS[name]
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, extent).astype(dtype)
    guarded, memory = at_the_end_of_a_page(values)
    out = tvm.runtime.empty((result,), dtype)
    main = built(kernel(extent, index_of, result, lanes, dtype), HOST)["main"]
    # DLPack has no booleans of NumPy's.
    main(tvm.runtime.tensor(values) if dtype == "bool" else tvm.runtime.from_dlpack(guarded), out)
    np.testing.assert_array_equal(out.numpy(), values[[index_of(i) for i in range(result)]])
    del guarded
    assert memory is not None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHUFFLED)
def test_they_are_read_at_once(name: str, target: str) -> None:
    extent, result, lanes, index_of = PATTERNS[name]
    source = built(kernel(extent, index_of, result, lanes), target).inspect_source("ll")
    body = source[source.index("compute_") :]
    assert "shufflevector" in body
    assert "insertelement" not in body


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_may_lie_outside_is_not_read(name: str) -> None:
    extent, result, lanes, index_of = PATTERNS[name]
    source = built(kernel(extent, index_of, result, lanes), TARGETS[1]).inspect_source("ll")
    assert f"load <{lanes} x float>" not in source
    assert "load float" in source


def test_what_was_read_before_a_store_is_not_read_again() -> None:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), at: T.Buffer((1,), "int32"), out: T.Buffer((16,), "float32")):  # type: ignore[no-untyped-def]
        for i in T.vectorized(16):
            v = T.bind(at[0] * 16 + i // 4)
            at[0] = 3
            out[i] = x[v]

    x, at = np.arange(64, dtype=np.float32), np.array([1], np.int32)
    out = tvm.runtime.empty((16,), "float32")
    built(tvm.IRModule({"main": main}), HOST)["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(at), out)
    np.testing.assert_array_equal(out.numpy(), np.repeat(x[16:20], 4))
