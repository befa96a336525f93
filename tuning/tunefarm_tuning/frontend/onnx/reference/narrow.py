"""Round the factors of a network's products to fewer bits, as a compile for bfloat16 or float16 does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tunefarm_tuning.frontend.onnx.reference.scaled import weighted_nodes
from tunefarm_tuning.workload.task import TensorSpec

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_FACTORS = 2
_BITS_OF_FLOAT32 = 24
BITS: Mapping[str, int] = {"bfloat16": 8, "float16": 11}
"""Bits of precision, by dtype."""


def with_narrow_factors(model: onnx.ModelProto, specs: Sequence[TensorSpec], dtype: str) -> bytes | None:
    """Return a network whose products by constant weights have both factors rounded to a dtype of `BITS`; None without such products.

    Rounding is Dekker's: of ``c = (2^s + 1) x``, ``c - (c - x)`` has s bits fewer than x. ONNX Runtime must not optimise the graph.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    nodes = list(twin.graph.node)
    positions = [at for at in weighted_nodes(model, specs) if nodes[at].op_type in _PRODUCTS]
    if not positions:
        return None
    multiplier = np.array(2.0 ** (_BITS_OF_FLOAT32 - BITS[dtype]) + 1.0, np.float32)
    name = f"{nodes[positions[0]].output[0]} multiplier"
    twin.graph.initializer.append(numpy_helper.from_array(multiplier, name))
    for position in reversed(positions):
        node = nodes[position]
        for number in range(_FACTORS):
            factor, stem = node.input[number], f"{node.output[0]} factor {number}"
            large, rest, narrow = f"{stem} large", f"{stem} rest", f"{stem} narrow"
            nodes[position:position] = [
                helper.make_node("Mul", [factor, name], [large]),
                helper.make_node("Sub", [large, factor], [rest]),
                helper.make_node("Sub", [large, rest], [narrow]),
            ]
            node.input[number] = narrow
    del twin.graph.node[:]
    twin.graph.node.extend(nodes)
    return bytes(twin.SerializeToString())
