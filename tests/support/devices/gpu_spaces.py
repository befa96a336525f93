"""Config spaces of a GPU's matrix product, made by hand: neither a compiler nor TVM is needed."""

from __future__ import annotations

from dataclasses import replace

from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.gpu_tiling import BlockLimits, GpuTiling, SharedTile, Tile
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.gpu import limits_of
from tunefarm_tuning.workload.computation import Access, Axis, Computation

SIZE = 512
_A, _B, _C = (((0, 1),), ((2, 1),)), (((2, 1),), ((1, 1),)), (((0, 1),), ((1, 1),))
PRODUCT = Computation(
    axes=(
        Axis(extent=SIZE, reduces=False),
        Axis(extent=SIZE, reduces=False),
        Axis(extent=SIZE, reduces=True),
    ),
    accesses=(
        Access(itemsize_bytes=4, writes=False, dims=_A),
        Access(itemsize_bytes=4, writes=False, dims=_B),
        Access(itemsize_bytes=4, writes=True, dims=_C),
    ),
    vector_bytes=16,
)
CORES = GpuTiling(
    tiles=(Tile(column=1, reduces=False), Tile(column=2, reduces=False), Tile(column=3, reduces=True)),
    shared=(SharedTile(itemsize_bytes=4, dims=_A), SharedTile(itemsize_bytes=4, dims=_B)),
    block_levels=1,
    vthreads=True,
    lanes=1,
    tensor_cores=0,
    fetch_columns=(4,),
    unroll_column=5,
    accumulator_bytes=4,
    limits=BlockLimits(
        max_threads=1024, min_threads=32, max_vthreads=8, max_shared_bytes=49152, max_static_bytes=49152
    ),
    device=limits_of("sm_90"),
)
WARPS = replace(
    CORES,
    tiles=tuple(replace(tile, unit=16) for tile in CORES.tiles),
    shared=tuple(
        replace(buffer, itemsize_bytes=2, pads=True, static=False, copies=3, whole_rows=32)
        for buffer in CORES.shared
    ),
    block_levels=2,
    vthreads=False,
    lanes=32,
    tensor_cores=1,
)


def plain_knobs(extent: int) -> tuple[Knob, ...]:
    """Return the knobs of a product of square matrices."""
    return (
        Knob.tile("i", extent, 5, 64),
        Knob.tile("j", extent, 5, 64),
        Knob.tile("k", extent, 3, 64),
        Knob.categorical("fetch", (1, 2, 3, 4)),
        Knob.categorical("unroll", (0, 16, 64)),
    )


def gpu_space(arch: str = "sm_90") -> ConfigSpace:
    """Return a space of two sketches: CUDA cores (`CORES`), and tensor cores (`WARPS`), for an architecture."""
    device = limits_of(arch)
    cores, warps = (replace(tiling, device=device) for tiling in (CORES, WARPS))
    return ConfigSpace(
        [Sketch(plain_knobs(SIZE), (0, 1, 2, -1, -1), "SSSRRSRS"), Sketch(plain_knobs(SIZE // 16))],
        PRODUCT,
        [cores, warps],
    )
