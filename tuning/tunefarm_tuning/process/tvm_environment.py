"""The environment of every process of ours that imports TVM; whoever starts us can say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TVM_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        # TVM's pool, even one of a single thread, binds the thread that makes it to the machine's first cores, out of a
        # ``taskset`` even, where every other process's does the same.
        "TVM_BIND_THREADS": "0",
        # As in an artifact (its `threads.py`): five milliseconds. TVM's pools ask for work for a tenth of a second after each call
        # otherwise, on the cores where what is timed next runs.
        "TVM_THREAD_POOL_SPIN_COUNT": "10000",
        # Where PyTorch is installed, TVM's import asks it for GPUs, which starts CUDA: in a process that forks (a device's RPC
        # server) no session can use the GPU then. Nothing of ours hands tensors of PyTorch to TVM there.
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
        # Whoever else asks PyTorch for GPUs has it ask the driver's NVML, which starts nothing.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
)
