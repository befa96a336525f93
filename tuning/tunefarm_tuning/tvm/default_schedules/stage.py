"""The stages of a kernel for schedule rules: loops, tensor accesses and strides. Inline stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import ScheduleError
from tvm.sym import Analyzer

from tunefarm_tuning.target.cores import ANY_X86, AVX2, Core, core_of
from tunefarm_tuning.target.dot_products import (
    ByteProducts,
    bfloat16_lanes,
    bfloat16_matrix_lanes,
    byte_products,
)
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import cpu_features
from tunefarm_tuning.tvm.base.tir import (
    IS_SCHEDULED,
    REDUCES,
    SPATIAL,
    block_with,
    schedule_of,
    type_key,
    uses,
    walk,
)
from tunefarm_tuning.tvm.default_schedules.access import (
    Access,
    access_of,
    is_equal,
    nominal_size,
)
from tunefarm_tuning.tvm.kernels.dot_products import KINDS

_SELECTS = "if_then_else"
_REUSE = 1.5
"""A stage is recomputed for each use if it is used at most this often per element."""
_MANY_READS = 16
"""Most tensors that a recomputed stage may read: each copy of a concatenation of more would choose among all of them."""
_CHEAP_CALLS = {_SELECTS, "likely", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts of a CPU that schedule rules use.

    Attributes:
        byte_products: The instruction for products of int8 (`target.dot_products`); None without one.
        bfloat16_lanes: The sums of its instruction for products of bfloat16; 0 without one.
        bfloat16_matrix_lanes: The results of a row of its instruction for two rows of bfloat16; 0 without one.
        core: What a core can do in a cycle.
        overlaps: Whether tiles may overlap; False for a kernel where they cannot (`cpu.overlapping_tiles`).
        cores: Cores that share a kernel's loops; 1 if the target does not say.
    """

    vector_bytes: int
    registers: int
    byte_products: ByteProducts | None = None
    bfloat16_lanes: int = 0
    bfloat16_matrix_lanes: int = 0
    core: Core = ANY_X86
    overlaps: bool = True
    cores: int = 1

    @classmethod
    def of(cls, target: Target) -> Machine:
        """Return the facts of an LLVM target's CPU; for other targets, the minimum of all CPUs."""
        if target.kind != "llvm":
            return cls(vector_bytes=16, registers=16)
        # TVM's own vector width is 512 bits for every x86 CPU.
        features, core = cpu_features(target), core_of(target)
        registers = core.registers if "neon" in features and core.registers else 16
        vector_bytes = 32 if "avx" in features else 16
        if "avx512f" in features:
            vector_bytes, registers = 64, 32
        elif core is ANY_X86:
            core = AVX2
        return cls(
            vector_bytes=vector_bytes,
            registers=registers,
            byte_products=byte_products(target),
            bfloat16_lanes=bfloat16_lanes(target),
            bfloat16_matrix_lanes=bfloat16_matrix_lanes(target),
            core=core,
            cores=int(str(target.get("num-cores") or 1)),
        )

    def lanes(self, dtype: str) -> int:
        """Return how many elements of a type fit into a register."""
        return max(1, self.vector_bytes // itemsize(dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """The loops of a block that has one for each of its variables, in the order of the variables.

    Attributes:
        extents: Iterations of each loop.
        reduces: Whether each is a reduction loop.
    """

    extents: tuple[int, ...]
    reduces: tuple[bool, ...]

    @property
    def points(self) -> int:
        """Number of times that the body runs."""
        return prod(self.extents)

    @property
    def spatial(self) -> list[int]:
        """Positions of the loops that are not reduction loops."""
        return [axis for axis, reduces in enumerate(self.reduces) if not reduces]

    @property
    def reduction(self) -> list[int]:
        """Positions of the reduction loops."""
        return [axis for axis, reduces in enumerate(self.reduces) if reduces]

    @property
    def is_injective(self) -> bool:
        """Whether there is no reduction loop."""
        return not any(self.reduces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Loops):
    """A block with such loops, and what it computes.

    Attributes:
        is_costly: The body is too expensive to compute twice: it has a root, an exponential, a division.
        selects: Whether the body has a condition, as a padding has.
        is_copy: The body is a single element of a tensor.
        shared: Loops that index one dimension of the result together, as the loops over groups and over the channels of a
            group. The tail of a tile of such a loop lies in the next group.
    """

    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    is_costly: bool
    selects: bool
    is_copy: bool
    shared: tuple[int, ...] = ()


def itemsize(dtype: str) -> int:
    """Return the size of an element in bytes, at least 1."""
    return max(1, int(tvm.runtime.DataType(dtype).itemsize))


def loops_of(sch: Any, block: Any) -> Loops | None:
    """Return the loops of a block; None if they are not exactly its variables. It takes a small part of the time of `stage_of`."""
    variables = list(sch.get(block).iter_vars)
    loops = [sch.get(loop) for loop in sch.get_loops(block)]
    if len(loops) != len(variables) or not variables:
        return None
    extents = []
    for loop, variable in zip(loops, variables, strict=True):
        if int(loop.kind) != 0 or int(variable.iter_type) not in (SPATIAL, REDUCES):
            return None
        if not is_equal(loop.extent, variable.dom.extent):
            return None
        extents.append(nominal_size(loop.extent))
    reduces = tuple(int(variable.iter_type) == REDUCES for variable in variables)
    return Loops(extents=tuple(extents), reduces=reduces)


def stage_of(sch: Any, block: Any) -> Stage | None:
    """Return the stage of a block; None if its loops are not exactly its variables."""
    loops = loops_of(sch, block)
    return None if loops is None else _stage(sch.get(block), loops)


@lru_cache(maxsize=128)
def _stage(node: SBlock, loops: Loops) -> Stage:
    """Return the stage of a block with such loops. Each rule asks for the same blocks anew; TVM changes a copy of one that is kept here."""
    variables = list(node.iter_vars)
    analyzer = Analyzer()
    for variable in variables:
        analyzer.bind(variable.var, tvm.ir.Range(0, variable.dom.extent))
    nodes = list(walk(node.body))
    called = {str(item.name).rpartition(".")[2] for item in nodes if isinstance(item, tvm.ir.Op)}
    return Stage(
        extents=loops.extents,
        reduces=loops.reduces,
        reads=tuple(access_of(region, variables, analyzer) for region in node.reads),
        writes=tuple(access_of(region, variables, analyzer) for region in node.writes),
        is_costly=any(isinstance(item, tirx.Div) for item in nodes) or bool(called - _CHEAP_CALLS),
        selects=_SELECTS in called or any(type_key(item).endswith(".Select") for item in nodes),
        is_copy=type_key(node.body).endswith("BufferStore")
        and type_key(node.body.value).endswith("TensorLoad"),
        shared=_shared_loops(node, variables),
    )


def _shared_loops(node: Any, variables: list[Any]) -> tuple[int, ...]:
    shared: set[int] = set()
    for region in node.writes:
        for dim in region.region:
            parts = list(walk(dim.min))
            loops = {
                axis
                for axis, variable in enumerate(variables)
                if any(isinstance(part, tirx.Var) and part.same_as(variable.var) for part in parts)
            }
            shared |= loops if len(loops) > 1 else set()
    return tuple(sorted(shared))


def finished(scheduled: tirx.PrimFunc, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel with the symbol of the original and the mark of a scheduled one."""
    if symbol := func.attrs.get("global_symbol"):
        return scheduled.with_attr("global_symbol", symbol).with_attr(IS_SCHEDULED, True)
    return scheduled.without_attr("global_symbol").with_attr(IS_SCHEDULED, True)


def blocks_of(sch: Any) -> list[Any]:
    """Return the blocks of a kernel in program order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def with_inlined_scalars(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel in which stages compute the single numbers that they read, as the scale of a quantised product.

    TVM does not inline a stage without loops, and no stage moves into a reduction's loops that reads what is computed outside of
    them. LLVM computes the numbers before the loops.
    """
    root = func.body.block if isinstance(func.body, SBlockRealize) else None
    if root is None or not isinstance(root.body, tirx.SeqStmt):
        return func
    scalars: list[SBlock] = []  # the blocks that compute them
    stmts = []
    for given in root.body.seq:
        stmt = _reading_computed(given, scalars)
        if isinstance(stmt, SBlockRealize) and _computes_scalar(stmt.block, root):
            scalars.append(stmt.block)
        else:
            stmts.append(stmt)
    if not scalars or not stmts:
        return func
    kept = [buffer for buffer in root.alloc_buffers if _computing(buffer, scalars) is None]
    body = tirx.SeqStmt(stmts) if len(stmts) > 1 else stmts[0]
    block = SBlock(root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init, kept)
    return func.with_body(SBlockRealize(func.body.iter_values, func.body.predicate, block))


def _computes_scalar(block: SBlock, root: SBlock) -> bool:
    """Return whether a block stores a single number, which no one reads but the kernel."""
    store = block.body
    return (
        block.init is None
        and type_key(store).endswith("BufferStore")
        and not store.indices
        and not uses(store.value, [item.var for item in block.iter_vars])
        and any(buffer.same_as(store.buffer) for buffer in root.alloc_buffers)
    )


def _computing(buffer: Any, scalars: Sequence[SBlock]) -> SBlock | None:
    """Return the block of a scalar that computes a buffer."""
    return next((scalar for scalar in scalars if scalar.body.buffer.same_as(buffer)), None)


def _reading_computed(stmt: Any, scalars: Sequence[SBlock]) -> Any:
    """Return a statement that computes scalars instead of reading them."""

    def value(load: Any) -> Any:
        scalar = _computing(load.source, scalars)
        return load if scalar is None else scalar.body.value

    def reads(block: Any) -> Any:
        computing = [_computing(region.source, scalars) for region in block.reads]
        regions = [region for region, scalar in zip(block.reads, computing, strict=True) if scalar is None]
        if len(regions) == len(block.reads):
            return block
        for scalar in computing:
            for region in scalar.reads if scalar is not None else ():
                if not any(region.source.same_as(known.source) for known in regions):
                    regions.append(region)
        return block_with(block, reads=regions)

    return (
        tvm_ffi.structural_map(stmt, [(tvm.ir.expr.TensorLoad, value), (SBlock, reads)]) if scalars else stmt
    )


Stays = Callable[[Any, Stage, Sequence[Any]], bool]
"""Takes a schedule, a stage and the blocks that read it; returns whether it stays a stage."""


def inlined_schedule(func: tirx.PrimFunc, stays: Stays | None = None) -> Schedule:
    """Return a schedule of a kernel whose stages are inlined."""
    sch = schedule_of(with_inlined_scalars(func))
    inline_stages(sch, stays)
    return sch


def inline_stages(sch: Any, stays: Stays | None = None) -> None:
    """Inline elementwise stages into their consumers, unless that repeats costly work."""
    for block in blocks_of(sch):
        stage = stage_of(sch, block)
        if stage is None or not stage.is_injective:
            continue
        consumers = list(sch.get_consumers(block))
        if any(str(sch.get(consumer).name_hint) in KINDS for consumer in consumers):
            continue  # an instruction reads what the stage computes as it is
        # Only their loops matter: a concatenation, analysed whole for each of its inputs, took most of a compile.
        into = [loops_of(sch, consumer) for consumer in consumers]
        if not consumers or not all(_may_go_into(stage, consumer) for consumer in into):
            continue
        if stays is not None and stays(sch, stage, consumers):
            continue
        if len(consumers) > 1 and (stage.is_costly or len(stage.reads) > _MANY_READS):
            continue
        with suppress(ScheduleError):
            sch.compute_inline(block)


def _may_go_into(stage: Stage, consumer: Loops | None) -> bool:
    if consumer is None:
        return False
    again = consumer.points / max(1, stage.points) > _REUSE
    if consumer.is_injective:
        return not (stage.is_costly and again)
    # A reduction reads an element many times, and its schedule expects reads without conditions.
    return stage.is_copy or not (again or stage.selects)
