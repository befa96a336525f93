"""Features of a GPU's configs that mean the same for every workload: threads, shared memory, registers, occupancy.

They are computed from the config space (`space.gpu_tiling`), without TVM.

Source: NVIDIA's CUDA C++ Best Practices Guide, and the features of Ansor (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

import numpy as np

from tunefarm_tuning.cost_model.base import FloatArray
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.space.gpu_tiling import FloatArray as Quantity
from tunefarm_tuning.space.gpu_tiling import GpuTiling, GpuUse
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.gpu import WARP_SIZE, GpuLimits

_NAMES = (
    "tensor_cores", "blocks", "threads", "vthreads", "warps", "idle_lanes", "shared_bytes", "read_bytes",
    "work_per_byte", "work_per_thread", "registers", "occupancy", "limited_by_registers", "limited_by_shared",
    "fetch_width", "unroll", "copies", "sm_warps",
)  # fmt: skip


class GpuFeatures:
    """Turns rows of one config space into features, `names` by column; NaN for sketches without tiles for a GPU."""

    def __init__(self, space: ConfigSpace) -> None:
        self._space = space
        self.names: tuple[str, ...] = tuple(f"gpu.{name}" for name in _NAMES) if space.gpu else ()

    def __call__(self, rows: IntArray) -> FloatArray:
        """Return the features of rows. Shape ``(n, len(names))``."""
        features = np.full((len(rows), len(self.names)), np.nan, dtype=np.float32)
        for number, tiling in enumerate(self._space.gpu):
            chosen = np.flatnonzero(rows[:, 0] == number)
            if tiling is not None and len(chosen):
                features[chosen] = _of(tiling, rows[chosen], self._space.sketches[number].knobs)
        return features


def _of(tiling: GpuTiling, rows: IntArray, knobs: tuple[Knob, ...]) -> FloatArray:
    use = tiling.use(rows, knobs)
    ones = np.ones(len(rows))
    resident = _resident_blocks(tiling, use)
    warps = np.ceil(use.threads / WARP_SIZE)
    fetch = [_values(knobs, rows, column) for column in tiling.fetch_columns]
    columns = [
        tiling.tensor_cores * ones,
        np.log2(use.blocks),
        np.log2(use.threads),
        np.log2(use.vthreads),
        np.log2(warps),
        warps * WARP_SIZE / use.threads - 1,
        np.log2(1 + use.shared_bytes),
        np.log2(1 + use.read_bytes),
        np.log2(use.work) - np.log2(1 + use.read_bytes),
        np.log2(use.work / use.threads),
        np.log2(use.registers),
        np.minimum(resident[0] * use.threads / tiling.device.threads_per_sm, 1.0),
        np.log2(resident[1]),
        np.log2(resident[2]),
        np.mean(fetch, axis=0) if fetch else ones,
        np.log2(1 + _values(knobs, rows, tiling.unroll_column)) if tiling.unroll_column else 0 * ones,
        max((tensor.copies for tensor in tiling.shared), default=1) * ones,
        tiling.device.threads_per_sm / WARP_SIZE * ones,
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def _resident_blocks(tiling: GpuTiling, use: GpuUse) -> tuple[Quantity, Quantity, Quantity]:
    """Return how many blocks an SM can hold: by all limits together, by registers, by shared memory."""
    device: GpuLimits = tiling.device
    registers = np.minimum(use.registers, device.registers_per_thread)
    by_registers = np.maximum(device.registers_per_sm / (registers * use.threads), 0.25)
    by_shared = np.maximum(device.shared_per_sm_bytes / np.maximum(use.shared_bytes, 1024), 0.25)
    by_threads = device.threads_per_sm / use.threads
    together = np.minimum.reduce([by_registers, by_shared, by_threads, device.blocks_per_sm + 0 * by_threads])
    return np.maximum(np.floor(together), 0), by_registers, by_shared


def _values(knobs: tuple[Knob, ...], rows: IntArray, column: int) -> Quantity:
    return np.array(knobs[column - 1].values, dtype=np.float64)[rows[:, column]]
