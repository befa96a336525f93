"""Read the mapping of a GPU sketch's tiles to blocks, threads and shared memory off its trace (`space.gpu_tiling`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.s_tir.schedule import Trace

from tunefarm_tuning.space.gpu_tiling import BlockLimits, GpuTiling, SharedTile, Tile, num_levels
from tunefarm_tuning.target.gpu import STATIC_SHARED_BYTES, WARP_SIZE, limits_of_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.space.cuda_space import MMA, WMMA
from tunefarm_tuning.tvm.space.knobs import PARTITIONED_TILE, TILE
from tunefarm_tuning.workload.computation import Computation

TILES = (TILE, PARTITIONED_TILE)
_MAX_VTHREADS = 8  # as TVM's VerifyGPUCode has it
_MMA_ROW = 32
_LOW = "meta_schedule.thread_extent_low_inclusive"
_UNROLL = "meta_schedule.unroll_explicit"
_STAGES = "software_pipeline_stage"
_FETCH = "meta_schedule.cooperative_fetch"


class _TraceFacts:
    """The facts that a walk along a trace collects.

    Attributes:
        binds: Names of the loops' bindings, up to the threads.
        reads: Copies of inputs into shared memory: index of the input and scope.
        writes: Scopes of results in shared memory.
        copies: Copies of an input that a software pipeline holds at a time.
        min_threads: Lower bound of the threads of a block.
        compute: Name of the tensor core intrinsic; empty without.
        tiles: Tile instructions with their columns.
        fetch: Columns of the widths of cooperative fetches.
        unroll: Column of the unrolling; 0 without.
        units: For each loop of the block, iterations inside the intrinsic.
    """

    def __init__(self, trace: Trace, sampling: Sequence[Any]) -> None:
        self.binds: list[str] = []
        self.reads: list[tuple[int, str]] = []
        self.writes: list[str] = []
        self.copies = 1
        self.min_threads = 1
        self.compute = ""
        self.tiles: list[tuple[int, Any]] = []
        self.fetch: list[int] = []
        self.unroll = 0
        self.units: list[int] = []
        column = {inst: number for number, inst in enumerate(sampling, start=1)}
        chosen: dict[Any, int] = {}  # variable of a categorical instruction: its column
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
                self._read_annotation(str(inst.attrs[0]), inputs[1], chosen)

    def _read_annotation(self, key: str, value: Any, chosen: dict[Any, int]) -> None:
        if key == _LOW:
            self.min_threads = int(value)
        elif key == _STAGES:
            self.copies = max(self.copies, 1 + max(int(stage) for stage in value))
        elif key == _UNROLL and value in chosen:
            self.unroll = chosen[value]
        elif key == _FETCH and value in chosen:
            self.fetch.append(chosen[value])
        elif key == "meta_schedule.auto_tensorize" and not self.compute:
            self.compute = str(value)


def gpu_tiling_of(
    trace: Trace,
    sampling: Sequence[Any],
    computation: Computation | None,
    *,
    tensor_cores: str,
    target: Target,
    max_shared_bytes: int,
) -> GpuTiling | None:
    """Return the mapping of a sketch's tiles; None if it has no tiles or an unknown structure.

    Args:
        trace: The sketch.
        sampling: Its sampling instructions, in the order of the knobs.
        computation: The tiled block's computation, before it was changed for tensor cores.
        tensor_cores: `SpaceMaker.tensor_cores` of the sketch's maker.
        target: The GPU.
        max_shared_bytes: Shared memory that a block may have, as of the `SpaceMaker`.
    """
    if computation is None:
        return None
    facts = _TraceFacts(trace, sampling)
    if len(facts.binds) != 3 or not facts.binds[2].startswith("threadIdx"):
        return None
    kinds = [len(inst.outputs) == num_levels(reduces=True) for _, inst in facts.tiles]
    # loops outside of the matrix product (batches) come first and are not split
    units = facts.units[-len(kinds) :] if tensor_cores else [1] * len(kinds)
    if len(units) != len(kinds) or not any(kinds):
        return None
    tiles = tuple(
        Tile(
            column=column,
            reduces=reduces,
            unit=unit,
            inner_multiple=int(inst.attrs[2]) if inst.kind.name == TILES[1] else 1,
        )
        for (column, inst), reduces, unit in zip(facts.tiles, kinds, units, strict=True)
    )
    shared = _shared_of_tensor_cores(facts, len(tiles), computation, tensor_cores) if tensor_cores else None
    if shared is None:
        if tensor_cores or len(computation.axes) != len(tiles):
            return None
        shared = _shared_of_cuda_cores(facts, computation)
    results = [access.itemsize_bytes for access in computation.accesses if access.writes]
    device = limits_of_target(target)
    return GpuTiling(
        tiles=tiles,
        shared=shared,
        block_levels=1 if facts.binds[1].startswith("vthread") else 2,
        vthreads=facts.binds[1].startswith("vthread"),
        lanes=WARP_SIZE if tensor_cores else 1,
        tensor_cores={"": 0, WMMA: 1, MMA: 2}[tensor_cores],
        fetch_columns=tuple(facts.fetch),
        unroll_column=facts.unroll,
        accumulator_bytes=results[0] if results else 4,
        limits=BlockLimits(
            max_threads=int(str(target.get("max_threads_per_block") or device.threads_per_block)),
            min_threads=facts.min_threads,
            max_vthreads=_MAX_VTHREADS,
            max_shared_bytes=max_shared_bytes,
            max_static_bytes=min(max_shared_bytes, STATIC_SHARED_BYTES),
        ),
        device=device,
    )


def _shared_of_cuda_cores(facts: _TraceFacts, computation: Computation) -> tuple[SharedTile, ...]:
    reads = [access for access in computation.accesses if not access.writes]
    return tuple(
        SharedTile(
            itemsize_bytes=reads[index].itemsize_bytes,
            dims=reads[index].dims,
            copies=facts.copies,
            static=scope == "shared",
        )
        for index, scope in facts.reads
        if index < len(reads)
    )


def _shared_of_tensor_cores(
    facts: _TraceFacts, num_tiles: int, computation: Computation, tensor_cores: str
) -> tuple[SharedTile, ...] | None:
    """Return the tiles of a matrix product in shared memory: for tensor cores every workload has the loops i, j and k."""
    if num_tiles != 3:
        return None
    i, j, k = range(3)
    right = (j, k) if "trans" in facts.compute else (k, j)
    itemsizes = [access.itemsize_bytes for access in computation.accesses if not access.writes]
    results = [access.itemsize_bytes for access in computation.accesses if access.writes]
    if not itemsizes or not results:
        return None

    def tile(axes: tuple[int, ...], itemsize_bytes: int, scope: str, *, reads: bool) -> SharedTile:
        return SharedTile(
            itemsize_bytes=itemsize_bytes,
            dims=tuple(((axis, 1),) for axis in axes),
            copies=facts.copies if reads else 1,
            pads=reads and tensor_cores == WMMA,
            whole_rows=_MMA_ROW if reads and tensor_cores == MMA else 1,
            static=scope == "shared",
            reads=reads,
        )

    tiles = [
        tile(((i, k), right)[index], itemsizes[0], scope, reads=True) for index, scope in facts.reads[:2]
    ]
    tiles += [tile((i, j), results[0], scope, reads=False) for scope in facts.writes]
    return tuple(tiles)
