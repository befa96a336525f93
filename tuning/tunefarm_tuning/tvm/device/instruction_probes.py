"""Kernels of one instruction each, of those that only some CPUs have and kernels are made for.

The calibration calls them: a board's system may promise what its CPU lacks (a virtual machine, another machine's device tree). Its float
kernels run all the same, and each job with the instruction would crash.
"""

# type checkers cannot read TVMScript
# mypy: disable-error-code="no-untyped-def, untyped-decorator, valid-type"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  (as TVM writes it)

from tunefarm_tuning.target.dot_products import ByteProducts, bfloat16_lanes, byte_products, has_float16
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.bfloat16_instructions import dot_bfloat16
from tunefarm_tuning.tvm.kernels.dot_products import add_byte_products, add_matrix_of_bytes

_FLOATS = 8
_BFLOAT16 = {16: "avx512bf16", 4: "bf16"}
"""By the sums of the instruction: LLVM's name of the feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionProbe:
    """A kernel that runs a feature's instruction.

    Attributes:
        feature: LLVM's name of the feature.
        func: ``(left, right, result)``.
        left: Its first argument.
        right: Its second argument.
        expected: Its result.
    """

    feature: str
    func: tirx.PrimFunc
    left: NDArray[Any]
    right: NDArray[Any]
    expected: NDArray[Any]

    @property
    def name(self) -> str:
        """The function's name in a library."""
        return f"probe_{self.feature}"


def instruction_probes(target: Target) -> list[InstructionProbe]:
    """Return a probe for each feature of a target that kernels are made for; none for a GPU."""
    probes = []
    if instruction := byte_products(target):
        probes += [_of_bytes(each) for each in dict.fromkeys((instruction.by_row, instruction))]
    if lanes := bfloat16_lanes(target):
        probes.append(_of_bfloat16(lanes))
    if has_float16(target):
        probes.append(_of_float16())
    return probes


def _of_bytes(instruction: ByteProducts) -> InstructionProbe:
    rows, lanes, products = instruction.rows, instruction.lanes, instruction.products
    left = (np.arange(rows * products) % 7 + 1).astype(instruction.activations)
    right = (np.arange(lanes * products) % 11 - 5).astype(np.int8)
    sums = left.reshape(rows, products).astype(np.int32) @ right.reshape(lanes, products).T.astype(np.int32)

    def added(activations: Any, factors: Any) -> Any:
        zeros = tirx.Broadcast(tirx.const(0, "int32"), rows * lanes)
        if rows == 1:
            return add_byte_products(zeros, activations, factors, instruction)
        return add_matrix_of_bytes(zeros, [activations], factors, instruction)

    return _probe(instruction.feature, added, left, right, sums.reshape(-1))


def _of_bfloat16(lanes: int) -> InstructionProbe:
    left = np.array([3.0, 5.0], np.float32)
    right = np.arange(2 * lanes, dtype=np.float32) - lanes

    def added(shared: Any, own: Any) -> Any:
        zeros = tirx.Broadcast(tirx.const(0.0, "float32"), lanes)
        return dot_bfloat16(zeros, tirx.Cast("bfloat16x2", shared), tirx.Cast(f"bfloat16x{2 * lanes}", own))

    return _probe(_BFLOAT16[lanes], added, left, right, right.reshape(lanes, 2) @ left)


def _of_float16() -> InstructionProbe:
    left = np.arange(1, 1 + _FLOATS, dtype=np.float32)
    right = np.full(_FLOATS, 3.0, np.float32)

    def multiplied(left: Any, right: Any) -> Any:
        narrow = [tirx.Cast(f"float16x{_FLOATS}", value) for value in (left, right)]
        return tirx.Cast(f"float32x{_FLOATS}", narrow[0] * narrow[1])

    return _probe("fullfp16", multiplied, left, right, left * right)


def _probe(
    feature: str,
    value: Callable[[Any, Any], Any],
    first: NDArray[Any],
    second: NDArray[Any],
    expected: NDArray[Any],
) -> InstructionProbe:
    counts = first.size, second.size, expected.size
    types = str(first.dtype), str(second.dtype), str(expected.dtype)

    @T.prim_func(s_tir=True)
    def main(
        left: T.Buffer((counts[0],), types[0]),
        right: T.Buffer((counts[1],), types[1]),
        result: T.Buffer((counts[2],), types[2]),
    ):
        T.func_attr({"tirx.noalias": True})
        result[T.ramp(0, 1, counts[2])] = value(left[T.ramp(0, 1, counts[0])], right[T.ramp(0, 1, counts[1])])

    func = main.with_attr("global_symbol", f"probe_{feature}")
    return InstructionProbe(feature=feature, func=func, left=first, right=second, expected=expected)
