"""Read a MetaSchedule sketch's tiling of the main block off its trace, and describe the block's computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm.s_tir.schedule import Trace
from tvm.sym import detect_linear_equation

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.tir import REDUCES, type_key, walk
from tunefarm_tuning.tvm.default_schedules.stage import Machine
from tunefarm_tuning.tvm.space.knobs import TILE
from tunefarm_tuning.workload.computation import Access, Axis, Computation, Term

_STRUCTURE = "meta_schedule.tiling_structure"
_CUDA_REGISTERS = 16, 32
"""Bytes that a thread moves at once, and a count that no rule for CPUs reads."""
_CONSUMER_MOVES = ("ReverseComputeAt",)


class SketchTiling:
    """The multi-level tiling of one block in a trace.

    Attributes:
        block: Name of the tiled block; empty if the trace tiles no block of the workload.
        structure: The levels of loops, outermost first: ``S`` for space, ``R`` for reduction (``"SSRSRS"``).
        axes: For each sampling instruction, the position of the block's loop that it tiles, or -1.
        epilogue_level: The level inside which the block's consumer is computed; -1 behind all loops.
    """

    def __init__(self, trace: Trace, sampling: Sequence[Any]) -> None:
        self.block = ""
        self.structure = ""
        self.axes: tuple[int, ...] = (-1,) * len(sampling)
        self.epilogue_level = -1
        blocks: dict[Any, str] = {}  # names of the workload's blocks, by the trace's variables
        loops: dict[Any, int] = {}  # loops of the tiled block before it was tiled: position
        tiled = None
        factors: dict[Any, tuple[int, int]] = {}  # loop after the split: axis, part
        for inst in trace.insts:
            kind = inst.kind.name
            if kind == "GetSBlock":
                blocks[inst.outputs[0]] = str(inst.attrs[0])
            elif kind == "Annotate" and str(inst.attrs[0]) == _STRUCTURE and tiled is None:
                tiled, self.structure = inst.inputs[0], str(inst.inputs[1])
                self.block = blocks.get(tiled, "")
            elif kind == "GetLoops" and tiled is not None and not loops and inst.inputs[0].same_as(tiled):
                loops = {loop: axis for axis, loop in enumerate(inst.outputs)}
            elif kind == "Split" and inst.inputs[0] in loops:
                axis = loops[inst.inputs[0]]
                factors |= {loop: (axis, part) for part, loop in enumerate(inst.outputs)}
            elif kind in _CONSUMER_MOVES and inst.inputs[1] in factors:
                self.epilogue_level = self._level_of(factors[inst.inputs[1]][1])
        if self.block:
            self.axes = tuple(
                loops.get(inst.inputs[0], -1) if inst.kind.name == TILE else -1 for inst in sampling
            )

    def _level_of(self, part: int) -> int:
        """Return the level of a part of a space loop; a consumer is computed inside space loops only."""
        levels = [level for level, kind in enumerate(self.structure) if kind == "S"]
        return levels[part] if part < len(levels) else -1


def block_of(mod: tvm.IRModule, name: str) -> Any | None:
    """Return a workload's block of this name; None if there is none."""
    for node in walk(mod["main"]):
        block: Any = node
        if type_key(node).endswith("SBlock") and str(block.name_hint) == name:
            return block
    return None


def computation_of(mod: tvm.IRModule, block: str, target: Target) -> Computation | None:
    """Return the computation of a workload's block; None if an index is not linear in the loops."""
    node = block_of(mod, block)
    if node is None:
        return None
    variables = [variable.var for variable in node.iter_vars]
    accesses = [_access(region, variables, writes=False) for region in node.reads]
    accesses += [_access(region, variables, writes=True) for region in node.writes]
    vector_bytes, registers = _CUDA_REGISTERS
    if target.kind == "llvm":
        machine = Machine.of(target)
        vector_bytes, registers = machine.vector_bytes, machine.registers
    known = tuple(access for access in accesses if access is not None)
    if len(known) != len(accesses):
        return None
    return Computation(
        axes=tuple(
            Axis(extent=int(variable.dom.extent), reduces=int(variable.iter_type) == REDUCES)
            for variable in node.iter_vars
        ),
        accesses=known,
        vector_bytes=vector_bytes,
        registers=registers,
    )


def _access(region: Any, variables: Sequence[Any], *, writes: bool) -> Access | None:
    dims: list[tuple[Term, ...]] = []
    for dim in region.region:
        factors = list(detect_linear_equation(dim.min, variables))
        if len(factors) != len(variables) + 1 or not all(
            isinstance(factor, int | tvm.tirx.IntImm) for factor in factors[:-1]
        ):
            return None
        dims.append(
            tuple((axis, abs(int(factor))) for axis, factor in enumerate(factors[:-1]) if int(factor) != 0)
        )
    size = int(tvm.runtime.DataType(str(region.source.dtype)).itemsize)
    return Access(itemsize_bytes=max(1, size), writes=writes, dims=tuple(dims))
