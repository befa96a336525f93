"""What default schedules look at: the stages of a kernel, their loops, and how each tensor is walked by each loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer, detect_linear_equation

from tunefarm_tuning.target.int8_dot_product import dot_lanes
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import type_key, walk

_SPATIAL, _REDUCES = 0, 2  # tvm.tirx.IterVar.DataPar, .CommReduce
_SELECTS = "if_then_else"
_MOST_LANES = 16
_CHEAP_CALLS = {_SELECTS, "likely", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a schedule has to know of the CPU.

    Attributes:
        vector_bytes: Of a register.
        registers: How many vectors fit into registers.
        dot_lanes: As of `byte_dots.dot_lanes`.
    """

    vector_bytes: int
    registers: int
    dot_lanes: int = 0

    @classmethod
    def of(cls, target: Target) -> Machine:
        """Return the facts of an LLVM target's CPU; the smallest common ones for other targets."""
        if target.kind != "llvm":
            return cls(vector_bytes=16, registers=16)
        # TVM's own width of vectors says 512 bits for every x86 CPU.
        features = {
            str(one) for one in tvm_ffi.get_global_func("target.llvm_get_cpu_features")(tvm_target(target))
        }
        if "avx512f" in features:
            return cls(vector_bytes=64, registers=32, dot_lanes=dot_lanes(target))
        return cls(
            vector_bytes=32 if "avx" in features else 16,
            registers=32 if "neon" in features else 16,
            dot_lanes=dot_lanes(target),
        )

    def lanes(self, dtype: str) -> int:
        """Return how many elements of a type fit into a register."""
        return max(1, self.vector_bytes // itemsize(dtype))


def replaced(node: Any, values: Sequence[tuple[Any, Any]]) -> Any:
    """Return an expression with variables replaced by values (TVM 0.27 exposes no substitution to Python)."""

    def of(variable: Any) -> Any:
        return next((value for one, value in values if one.same_as(variable)), variable)

    return tvm_ffi.structural_map(node, (tirx.Var, of))


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How one tensor is read or written.

    Attributes:
        strides: For each loop, the elements between one iteration and the next; None where that is no constant, 1 also for
            loops of `near`.
        near: The loops whose elements lie near each other in another order: `lane_loads` reads them as it does those that
            lie side by side.
    """

    buffer: str
    dtype: str
    elements: int
    strides: tuple[int | None, ...]
    near: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A block whose loops are its own: one loop for each of its variables, in their order.

    Attributes:
        is_costly: Its body should not be computed twice: a root, an exponential, a division.
        selects: Its body has a condition (a padding has one).
        is_copy: Its body is one element of a tensor.
        shared: Loops that walk one dimension of the result together, as groups and the channels of one do: what a tile of
            these leaves over lies in the next one.
    """

    extents: tuple[int, ...]
    reduces: tuple[bool, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    is_costly: bool
    selects: bool
    is_copy: bool
    shared: tuple[int, ...] = ()

    @property
    def points(self) -> int:
        """How often the body runs."""
        count = 1
        for extent in self.extents:
            count *= extent
        return count

    @property
    def spatial(self) -> list[int]:
        return [place for place, reduces in enumerate(self.reduces) if not reduces]

    @property
    def reduction(self) -> list[int]:
        return [place for place, reduces in enumerate(self.reduces) if reduces]

    @property
    def is_injective(self) -> bool:
        return not any(self.reduces)


def itemsize(dtype: str) -> int:
    """Return the bytes of an element."""
    return max(1, int(tvm.runtime.DataType(dtype).itemsize))


def stage_of(sch: Any, block: Any) -> Stage | None:
    """Return what a block does; None where its loops are not plainly its variables, or its body is not one store."""
    node = sch.get(block)
    loops = [sch.get(loop) for loop in sch.get_loops(block)]
    variables = list(node.iter_vars)
    if len(loops) != len(variables) or not variables:
        return None
    extents = []
    for loop, variable in zip(loops, variables, strict=True):
        if not isinstance(loop.extent, tirx.IntImm) or int(variable.iter_type) not in (_SPATIAL, _REDUCES):
            return None
        if int(loop.kind) != 0 or int(loop.extent) != int(variable.dom.extent):
            return None
        extents.append(int(loop.extent))
    analyzer = Analyzer()
    for variable in variables:
        analyzer.bind(variable.var, tvm.ir.Range(0, variable.dom.extent))
    reads = [_access(region, variables, analyzer) for region in node.reads]
    writes = [_access(region, variables, analyzer) for region in node.writes]
    if any(one is None for one in (*reads, *writes)):
        return None
    inside = list(walk(node.body))
    called = {str(one.name).rpartition(".")[2] for one in inside if isinstance(one, tvm.ir.Op)}
    return Stage(
        extents=tuple(extents),
        reduces=tuple(int(one.iter_type) == _REDUCES for one in variables),
        reads=tuple(one for one in reads if one is not None),
        writes=tuple(one for one in writes if one is not None),
        is_costly=any(isinstance(one, tirx.Div) for one in inside) or bool(called - _CHEAP_CALLS),
        selects=_SELECTS in called or any(type_key(one).endswith(".Select") for one in inside),
        is_copy=type_key(node.body).endswith("BufferStore")
        and type_key(node.body.value).endswith("TensorLoad"),
        shared=_shared_loops(node, variables),
    )


def _shared_loops(node: Any, variables: list[Any]) -> tuple[int, ...]:
    found: set[int] = set()
    for region in node.writes:
        for dim in region.region:
            parts = list(walk(dim.min))
            loops = {
                place
                for place, one in enumerate(variables)
                if any(isinstance(part, tirx.Var) and part.same_as(one.var) for part in parts)
            }
            found |= loops if len(loops) > 1 else set()
    return tuple(sorted(found))


def _access(region: Any, variables: list[Any], analyzer: Any) -> Access | None:
    shape = [int(dim) if isinstance(dim, tirx.IntImm) else None for dim in region.source.shape]
    if any(dim is None for dim in shape):
        return None
    index: Any = tirx.const(0, "int64")
    elements = 1
    single = True
    for dim, extent in zip(reversed(list(region.region)), reversed(shape), strict=True):
        single = single and isinstance(dim.extent, tirx.IntImm) and int(dim.extent) == 1
        index = index + tirx.Cast("int64", dim.min) * elements
        elements *= extent or 1
    index = analyzer.simplify(index)
    strides = [_stride(index, one.var) if single else None for one in variables]
    reduces = any(int(one.iter_type) == _REDUCES for one in variables)
    near = [
        place
        for place, one in enumerate(variables)
        if single and reduces and strides[place] is None and _is_near(index, one, analyzer)
    ]
    return Access(
        buffer=str(region.source.name),
        dtype=str(region.source.dtype),
        elements=elements,
        strides=tuple(1 if place in near else stride for place, stride in enumerate(strides)),
        near=tuple(near),
    )


def _stride(index: Any, variable: Any) -> int | None:
    found = list(detect_linear_equation(index, [variable]))
    return int(found[0]) if len(found) == 2 and isinstance(found[0], int | tirx.IntImm) else None


def _is_near(index: Any, variable: Any, analyzer: Any) -> bool:
    """Whether a short loop goes over as few elements as a vector or two have."""
    extent = int(variable.dom.extent)
    if extent > _MOST_LANES:
        return False
    places = [_at(index, variable.var, step) - _at(index, variable.var, 0) for step in range(extent)]
    found = [analyzer.simplify(place) for place in places]
    if not all(isinstance(place, tirx.IntImm) for place in found):
        return False
    numbers = [int(place) for place in found]
    return max(numbers) - min(numbers) < 2 * extent


def _at(index: Any, variable: Any, value: int) -> Any:
    number = tirx.const(value, str(variable.expr_ty().dtype))
    return replaced(index, [(variable, number)])
