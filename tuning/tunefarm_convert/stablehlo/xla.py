"""XLA's compiler for the CPU, as jaxlib brings it, without JAX: what a program computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib import _jax, xla_client
from numpy.typing import NDArray


class _Buffer:
    """What XLA computed, for `numpy.from_dlpack`."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        return _jax.buffer_to_dlpack_managed_tensor(self._array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # memory of the CPU


def run(module: Any, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Compile a parsed module, and run it once."""
    # jaxlib asks whether 64-bit numbers may be, which JAX would have told it.
    _jax.jax_jit.set_enable_x64_state(_jax.config.Config("jax_enable_x64", True))
    client = xla_client.make_cpu_client(asynchronous=False)
    (device,) = client.local_devices()[:1]
    text = module.operation.get_asm().encode()
    program = client.compile_and_load(text, _jax.DeviceList((device,)), xla_client.CompileOptions())
    # Copied: XLA would else want them at addresses of its own liking.
    fed = [
        _jax.dlpack_managed_tensor_to_buffer(np.array(one).__dlpack__(), device, None, True) for one in inputs
    ]
    results = program.execute_sharded(fed).disassemble_into_single_device_arrays()
    return [np.from_dlpack(_Buffer(one[0])).copy() for one in results]
