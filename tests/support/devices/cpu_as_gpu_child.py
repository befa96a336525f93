"""`tvm.children.measure` with the CPU in the place of the GPU."""

from __future__ import annotations

from cpu_as_gpu import CpuAsGpu

from tunefarm_tuning.tvm.children import measure as measure_child
from tunefarm_tuning.tvm.device.session import DeviceSession

measure_child.local_session = lambda: CpuAsGpu(DeviceSession(None))
HANDLERS = measure_child.HANDLERS
