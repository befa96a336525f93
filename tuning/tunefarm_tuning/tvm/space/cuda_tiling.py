"""What a GPU's sketch does with its tiles, read off its trace (see `gpu_nest`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.s_tir.schedule import Trace

from tunefarm_tuning.space.gpu_tiling import GpuLimitsOfBlock, GpuNest, SharedTile, Tile, num_levels
from tunefarm_tuning.target.gpu import STATIC_SHARED_BYTES, WARP_SIZE, limits_of_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.space.cuda_space import MMA, WMMA
from tunefarm_tuning.workload.computation import Computation

TILES = ("SamplePerfectTile", "SamplePartitionedTile")
_MAX_VTHREADS = 8  # as TVM's VerifyGPUCode has it
_MMA_ROW = 32
_LOW = "meta_schedule.thread_extent_low_inclusive"
_UNROLL = "meta_schedule.unroll_explicit"
_STAGES = "software_pipeline_stage"
_FETCH = "meta_schedule.cooperative_fetch"


class _Reading:
    """One walk along a trace."""

    def __init__(self, trace: Trace, sampling: Sequence[Any]) -> None:
        self.binds: list[str] = []
        self.reads: list[tuple[int, str]] = []  # index of the read, scope
        self.writes: list[str] = []
        self.copies = 1
        self.min_threads = 1
        self.compute = ""
        self.tiles: list[tuple[int, Any]] = []
        self.fetch: list[int] = []
        self.unroll = 0
        self.units: list[int] = []
        column = {one: place for place, one in enumerate(sampling, start=1)}
        chosen: dict[Any, int] = {}  # a category's variable: its column
        loops: Sequence[Any] = ()
        by_loop: dict[Any, int] = {}
        for inst in trace.insts:
            kind, inputs = inst.kind.name, inst.inputs
            if inst in column:
                if kind in TILES:
                    self.tiles.append((column[inst], inst))
                elif kind == "SampleCategorical":
                    chosen[inst.outputs[0]] = column[inst]
            if kind == "GetLoops" and not by_loop:
                loops = inst.outputs
            elif kind == "Split" and not self.tiles and inputs[1] is None:
                by_loop[inputs[0]] = int(inputs[2])
                self.units = [by_loop.get(loop, 1) for loop in loops]
            elif kind == "Bind" and "threadIdx.x" not in self.binds and "threadIdx.y" not in self.binds:
                self.binds.append(str(inst.attrs[0]))
            elif kind in ("CacheRead", "ReadAt") and str(inst.attrs[1]).startswith("shared"):
                self.reads.append((int(inst.attrs[0]), str(inst.attrs[1])))
            elif kind == "CacheWrite" and str(inst.attrs[1]).startswith("shared"):
                self.writes.append(str(inst.attrs[1]))
            elif kind == "Annotate":
                self._annotated(str(inst.attrs[0]), inputs[1], chosen)

    def _annotated(self, key: str, value: Any, chosen: dict[Any, int]) -> None:
        if key == _LOW:
            self.min_threads = int(value)
        elif key == _STAGES:
            self.copies = max(self.copies, 1 + max(int(one) for one in value))
        elif key == _UNROLL and value in chosen:
            self.unroll = chosen[value]
        elif key == _FETCH and value in chosen:
            self.fetch.append(chosen[value])
        elif key == "meta_schedule.auto_tensorize" and not self.compute:
            self.compute = str(value)


def gpu_nest_of(
    trace: Trace,
    sampling: Sequence[Any],
    computation: Computation | None,
    *,
    tensor_cores: str,
    target: Target,
    max_shared_bytes: int,
) -> GpuNest | None:
    """Return how a sketch shares its tiles out; None where it has no tiles, or they are not those of TVM's rules.

    Args:
        trace: The sketch.
        sampling: Its sampling instructions, in the order of the knobs.
        computation: The tiled block's, before it was changed for tensor cores.
        tensor_cores: Of the `SpaceMaker` that made it.
        target: What a block may have, and an SM.
        max_shared_bytes: The space's.
    """
    if computation is None:
        return None
    found = _Reading(trace, sampling)
    if len(found.binds) != 3 or not found.binds[2].startswith("threadIdx"):
        return None
    kinds = [len(inst.outputs) == num_levels(reduces=True) for _, inst in found.tiles]
    # Loops that are no part of a product of matrices (batches) come first, and are not split.
    units = found.units[-len(kinds) :] if tensor_cores else [1] * len(kinds)
    if len(units) != len(kinds) or not any(kinds):
        return None
    tiles = tuple(
        Tile(
            column=column,
            reduces=reduces,
            unit=unit,
            inner_multiple=int(inst.attrs[2]) if inst.kind.name == TILES[1] else 1,
        )
        for (column, inst), reduces, unit in zip(found.tiles, kinds, units, strict=True)
    )
    shared = _of_tensor_cores(found, len(tiles), computation, tensor_cores) if tensor_cores else None
    if shared is None:
        if tensor_cores or len(computation.axes) != len(tiles):
            return None
        shared = _of_cuda_cores(found, computation)
    results = [one.itemsize_bytes for one in computation.accesses if one.writes]
    device = limits_of_target(target)
    return GpuNest(
        tiles=tiles,
        shared=shared,
        block_levels=1 if found.binds[1].startswith("vthread") else 2,
        vthreads=found.binds[1].startswith("vthread"),
        lanes=WARP_SIZE if tensor_cores else 1,
        tensor_cores={"": 0, WMMA: 1, MMA: 2}[tensor_cores],
        fetch_columns=tuple(found.fetch),
        unroll_column=found.unroll,
        accumulator_bytes=results[0] if results else 4,
        limits=GpuLimitsOfBlock(
            max_threads=int(str(target.get("max_threads_per_block") or device.threads_per_block)),
            min_threads=found.min_threads,
            max_vthreads=_MAX_VTHREADS,
            max_shared_bytes=max_shared_bytes,
            max_static_bytes=min(max_shared_bytes, STATIC_SHARED_BYTES),
        ),
        device=device,
    )


def _of_cuda_cores(found: _Reading, computation: Computation) -> tuple[SharedTile, ...]:
    reads = [one for one in computation.accesses if not one.writes]
    return tuple(
        SharedTile(
            itemsize_bytes=reads[index].itemsize_bytes,
            dims=reads[index].dims,
            copies=found.copies,
            static=scope == "shared",
        )
        for index, scope in found.reads
        if index < len(reads)
    )


def _of_tensor_cores(
    found: _Reading, num_tiles: int, computation: Computation, tensor_cores: str
) -> tuple[SharedTile, ...] | None:
    """Return the tiles of a product of matrices: whatever the workload was, its loops are now i, j and k."""
    if num_tiles != 3:
        return None
    i, j, k = range(3)
    right = (j, k) if "trans" in found.compute else (k, j)
    itemsizes = [one.itemsize_bytes for one in computation.accesses if not one.writes]
    results = [one.itemsize_bytes for one in computation.accesses if one.writes]
    if not itemsizes or not results:
        return None

    def tile(axes: tuple[int, ...], itemsize_bytes: int, scope: str, *, reads: bool) -> SharedTile:
        return SharedTile(
            itemsize_bytes=itemsize_bytes,
            dims=tuple(((axis, 1),) for axis in axes),
            copies=found.copies if reads else 1,
            pads=reads and tensor_cores == WMMA,
            whole_rows=_MMA_ROW if reads and tensor_cores == MMA else 1,
            static=scope == "shared",
            reads=reads,
        )

    made = [tile(((i, k), right)[index], itemsizes[0], scope, reads=True) for index, scope in found.reads[:2]]
    made += [tile((i, j), results[0], scope, reads=False) for scope in found.writes]
    return tuple(made)
