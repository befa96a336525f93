"""The prior of GPUs: a static estimate of a kernel's time from its threads, registers and bytes, fitted to nothing.

A block's step takes the time of its arithmetic, of its reads of shared memory, and of those of global memory. It is longer where
lanes of a warp are idle, where too few warps are in flight to hide latencies, and where blocks are too few for all SMs or leave most of
them idle at the end. It orders configs before a task's first measurement; from then on the cost model corrects it.

Against the fastest configs that others once measured on GPUs: ``benchmarks/results/gpu_prior.md``. For tensor cores there was no such
reference.

Source of the rates: NVIDIA's table of throughput per SM and clock (128 products, 32 numbers of shared memory), and the bandwidth and
number of SMs of a large GPU (of some 80 SMs each reads 16 bytes in a clock, half of them from the L2 cache). How many warps an SM holds
depends on the architecture (`target.gpu.limits_of`): 64 for sm_80 and sm_90, 48 for sm_86 to sm_89 and sm_120, 32 for sm_75.
"""

from __future__ import annotations

import numpy as np

from tunefarm_tuning.cost_model.base import FloatArray

_PRODUCTS = 128.0
_ON_TENSOR_CORES = 8.0  # times as many
_SHARED_NUMBERS = 32.0
_GLOBAL_BYTES = 16.0
_SMS = 80.0
_WARPS_IN_FLIGHT = 32.0  # that hide the latencies
_CONTROL_REGISTERS = 24.0  # as of `space.gpu_tiling`
_LEAST_RESIDENT = 0.25  # blocks, where an SM cannot hold one
_READ = (
    "tensor_cores", "blocks", "warps", "idle_lanes", "read_bytes", "work_per_byte", "registers", "occupancy", "sm_warps",
)  # fmt: skip


class StaticGpuPrior:
    """Implements `Prior` for the spaces that `applies` names; configs without features of a GPU get 0.

    Args:
        names: The shared features of a space.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._columns = [names.index(f"gpu.{name}") for name in _READ]

    @staticmethod
    def applies(names: tuple[str, ...]) -> bool:
        """Return whether features are those of a space for a GPU."""
        return {f"gpu.{name}" for name in _READ} <= set(names)

    def predict(self, features: FloatArray) -> FloatArray:
        """Return log2 of the throughput of each row, up to a constant of the task. Shape ``(n,)``."""
        columns = features[:, self._columns].astype(np.float64).T
        tensor_cores, log_blocks, log_warps, idle, log_read, log_reuse, log_registers, occupancy, sm_warps = (
            columns
        )
        blocks, warps, read = np.exp2(log_blocks), np.exp2(log_warps), np.exp2(log_read)
        work = np.exp2(log_reuse) * read
        # A thread reads a row and a column for a square of results.
        results = np.maximum(np.exp2(log_registers) - _CONTROL_REGISTERS, 1.0)
        rate = np.where(tensor_cores > 0, _ON_TENSOR_CORES, 1.0)
        arithmetic = work * (1 + idle) / rate * (1 / _PRODUCTS + 2 / (np.sqrt(results) * _SHARED_NUMBERS))
        clocks = arithmetic + (read - 1) / _GLOBAL_BYTES
        resident = np.maximum(np.floor(occupancy * sm_warps / warps + 1e-3), _LEAST_RESIDENT)
        running = np.minimum(resident, np.maximum(blocks / _SMS, 1.0))
        hidden = np.sqrt(np.minimum(running * warps / _WARPS_IN_FLIGHT, 1.0))
        waves = blocks / (_SMS * running)
        busy = np.where(blocks > _SMS, waves / np.ceil(waves - 1e-9), blocks / _SMS)
        scores = np.log2(work * hidden * busy) - np.log2(clocks)
        return np.asarray(np.nan_to_num(scores, nan=0.0), dtype=np.float32)
