"""Kernels of running sums and products along an axis, for CPUs.

TVM's kernel walks the columns one after another: where the axis is not the last one, each step reads another cache line. Here the elements beside
each other go along the axis together, in vectors. The order of additions is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED, OPAQUE, whole

_VECTOR_BYTES = 64
_MOST_VECTORS = 32
"""Vectors that go along the axis together: their last sums stay in the first cache."""
_SHARED_ELEMENTS = 1 << 16
"""Elements from which on threads share the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A running sum or product.

    Attributes:
        is_product: Whether elements are multiplied.
        is_exclusive: Whether an element is that of those before it, without its own.
        dtype: Of the elements.
        result_dtype: Of the results, in which they are computed.
    """

    is_product: bool
    is_exclusive: bool
    dtype: str
    result_dtype: str


def scan_kernel(scan: Scan, shape: Sequence[Any], axis: int | None) -> tirx.PrimFunc:
    """Return the kernel of a scan.

    Args:
        scan: What is computed.
        shape: Of the tensor; expressions where it is open.
        axis: The axis to go along; None goes along all elements, of which a tensor of one dimension is made.
    """
    given: dict[str, Any] = {}
    sizes = [size if isinstance(size, int) else _variable(size, given) for size in shape]
    position = len(sizes) if axis is None else axis % len(sizes)
    before, after = ([], []) if axis is None else (sizes[:position], sizes[position + 1 :])
    steps = prod(sizes) if axis is None else sizes[position]
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True, IS_SCHEDULED: True, "op_pattern": OPAQUE})
        x = T.arg("x", T.Buffer(sizes, scan.dtype))
        y = T.arg("y", T.Buffer([steps] if axis is None else sizes, scan.result_dtype))
        with T.sblock("scan"):
            T.reads([whole(x)])
            T.writes([whole(y)])
            blocks = [prod(before), steps, prod(after)]
            flat_x = T.decl_buffer(blocks, scan.dtype, data=x.data)
            flat_y = T.decl_buffer(blocks, scan.result_dtype, data=y.data)
            _write_columns(_Writer(scan=scan, x=flat_x, y=flat_y), *blocks)
    func: tirx.PrimFunc = builder.get().without_attr("global_symbol")
    return func


def _variable(size: Any, given: dict[str, Any]) -> Any:
    """Return the variable of the kernel that stands for an open size: the same for equal ones."""
    return given.setdefault(str(size), tirx.Var(f"size{len(given)}", "int64"))


def _write_columns(writer: _Writer, before: Any, steps: Any, after: Any) -> None:
    if not isinstance(after, int):
        with T.parallel(before) as row:
            writer.write_open(row, steps, after)
        return
    sizes = [size for size in (before, steps, after) if isinstance(size, int)]
    is_shared = len(sizes) < 3 or prod(sizes) >= _SHARED_ELEMENTS
    loop = T.parallel if is_shared and before != 1 else T.serial
    lanes = _VECTOR_BYTES // max(4, writer.result_bytes)
    first = 0
    while lanes > 1:
        vectors = (after - first) // lanes
        if vectors:
            together = max(size for size in range(1, _MOST_VECTORS + 1) if vectors % size == 0)
            groups = vectors // together
            group_loop = T.parallel if is_shared and before == 1 else T.serial
            with loop(before) as row, (group_loop if groups > 1 else T.serial)(groups) as group:
                start = first + group * (together * lanes)
                writer.write(row, steps, start, together, lanes)
            first += vectors * lanes
        lanes //= 2
    if first < after:
        with loop(before) as row:
            writer.write(row, steps, first, after - first, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Writes the loops of a scan."""

    scan: Scan
    x: Any
    y: Any

    @property
    def result_bytes(self) -> int:
        return int(self.y.dtype.itemsize)

    def write(self, row: Any, steps: Any, start: Any, together: int, lanes: int) -> None:
        """Write some vectors of columns, from `start` on."""

        def each(store: Callable[[Any], None]) -> None:
            with T.serial(together) as number:
                if lanes == 1:
                    store(start + number)
                else:
                    with T.vectorized(lanes) as lane:
                        store(start + number * lanes + lane)

        self._write(row, steps, each)

    def write_open(self, row: Any, steps: Any, after: Any) -> None:
        """Write all columns, of which nobody knows the number."""

        def each(store: Callable[[Any], None]) -> None:
            with T.serial(after) as column:
                store(column)

        self._write(row, steps, each)

    def _write(self, row: Any, steps: Any, each: Callable[[Callable[[Any], None]], None]) -> None:
        def begin(column: Any) -> None:
            start = tirx.const(1 if self.scan.is_product else 0, self.scan.result_dtype)
            value = start if self.scan.is_exclusive else self._value(row, 0, column)
            T.buffer_store(self.y, value, [row, 0, column])

        is_there = isinstance(steps, int) and steps > 0
        with nullcontext() if is_there else T.serial(tirx.min(steps, 1)):
            each(begin)
        with T.serial(steps - 1) as step:

            def go_on(column: Any) -> None:
                value = self._value(row, step if self.scan.is_exclusive else step + 1, column)
                so_far = self.y[row, step, column]
                total = so_far * value if self.scan.is_product else so_far + value
                T.buffer_store(self.y, total, [row, step + 1, column])

            each(go_on)

    def _value(self, row: Any, step: Any, column: Any) -> Any:
        value = self.x[row, step, column]
        return value if self.scan.dtype == self.scan.result_dtype else value.astype(self.scan.result_dtype)


def legalize_scan(is_product: bool) -> Callable[[Any, Any], Any]:
    """Return the legalisation of ``relax.cumsum`` or ``relax.cumprod``."""

    def legalize(builder: Any, call: Any) -> Any:
        x, axis = call.args[0], call.attrs.axis
        shape = [int(size) if isinstance(size, tirx.IntImm) else size for size in x.ty.shape]
        scan = Scan(
            is_product=is_product,
            is_exclusive=bool(call.attrs.exclusive),
            dtype=str(x.ty.dtype.dtype),
            result_dtype=str(call.ty.dtype.dtype),
        )
        func = scan_kernel(scan, shape, None if axis is None else int(axis))
        kernel = builder.add_func(func, "cumprod" if is_product else "cumsum")
        return relax.call_tir(kernel, [x], out_ty=relax.TensorType(call.ty.shape, scan.result_dtype))

    return legalize


SCANS: Mapping[str, Callable[[Any, Any], Any]] = {
    "relax.cumprod": legalize_scan(is_product=True),
    "relax.cumsum": legalize_scan(is_product=False),
}
"""Legalisations of operators by name, for CPUs."""
