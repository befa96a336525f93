"""Run a StableHLO program in XLA's CPU compiler, a part of jaxlib, without JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib import _jax, xla_client
from numpy.typing import NDArray

from tunefarm_convert.signatures import stablehlo_module
from tunefarm_convert.stablehlo.operators.control import is_harmless
from tunefarm_convert.stablehlo.parser import custom_calls, parse_module
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean, clean_message


def run(data: bytes, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Run a StableHLO file once, unless any part of it names a function outside of it: XLA would call that.

    Raises:
        InvalidModelError: reference-failed, not-stablehlo, invalid-stablehlo.
    """
    module = parse_module(stablehlo_module(data))
    foreign = sorted(name for name in custom_calls(module) if not is_harmless(name))
    if foreign:
        raise InvalidModelError(
            f"it names functions that are not in the file, which XLA would call: {clean(', '.join(foreign), 300)}",
            code="reference-failed",
        )
    try:
        return _compile_and_run(module, inputs)
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidModelError(
            f"XLA cannot run the program: {clean_message(error)}", code="reference-failed"
        ) from error


class _Buffer:
    """An array of XLA, for `numpy.from_dlpack`."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        return _jax.buffer_to_dlpack_managed_tensor(self._array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # memory of the CPU


def _compile_and_run(module: Any, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    # jaxlib asks whether 64-bit numbers are allowed; usually JAX answers
    _jax.jax_jit.set_enable_x64_state(_jax.config.Config("jax_enable_x64", True))
    client = xla_client.make_cpu_client(asynchronous=False)
    (device,) = client.local_devices()[:1]
    text = module.operation.get_asm().encode()
    program = client.compile_and_load(text, _jax.DeviceList((device,)), xla_client.CompileOptions())
    # Copied: XLA insists on an alignment that NumPy does not give.
    buffers = [
        _jax.dlpack_managed_tensor_to_buffer(np.array(array).__dlpack__(), device, None, True)
        for array in inputs
    ]
    results = program.execute_sharded(buffers).disassemble_into_single_device_arrays()
    return [np.from_dlpack(_Buffer(shards[0])).copy() for shards in results]
