"""Write a network in float64, so that ONNX Runtime computes its outputs with next to no rounding.

Every float32 and float16 tensor becomes float64. Where ONNX Runtime has no float64 kernel, the operator is written with others
that have one (`float64_operators`), or stays float32 between casts: that rounds once per element instead of once per term.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.frontend.onnx.binding import real_inputs
from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS, all_graphs, opsets_of
from tunefarm_tuning.frontend.onnx.reference.float64_operators import INEXACT, REWRITES, Shapes
from tunefarm_tuning.frontend.onnx.reference.inferred_types import with_inferred_types
from tunefarm_tuning.workload.task import TensorSpec

_NARROW = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
_WIDE = TensorProto.DOUBLE
_BRANCHES = frozenset({"If", "Loop", "Scan"})
"""Operators that take any type."""
_TYPED_BY_ATTRIBUTE = frozenset(
    {"Cast", "EyeLike", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"}
)


_WIDE_ON_PAPER = frozenset({"LSTM", "GRU", "RNN"})
"""Operators whose float64 kernel fails when it runs."""


_NARROW_BY_SCHEMA = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
"""Operators of which ONNX Runtime has a kernel in float64 that its own schema does not allow."""


class NoFloat64(Exception):  # noqa: N818  (an answer to the caller, which goes on without)
    """The network cannot be written in float64; the message says why."""


def in_float64(model: onnx.ModelProto, inputs: Sequence[TensorSpec]) -> onnx.ModelProto:
    """Return the network in float64: its float inputs and outputs are float64, too.

    Args:
        model: The network; it stays as it is.
        inputs: Its inputs with all sizes known.

    Raises:
        NoFloat64: If its types cannot be inferred.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    return _Widening(_typed(twin, inputs)).run()


def with_exact_sigmoids(model: onnx.ModelProto, inputs: Sequence[TensorSpec]) -> onnx.ModelProto | None:
    """Return the network with its `INEXACT` operators alone in float64, which costs little; None if it has none.

    Args:
        model: The network; it stays as it is.
        inputs: Its inputs with all sizes known.

    Raises:
        NoFloat64: If its types cannot be inferred.
    """
    if not any(node.op_type in INEXACT for graph in all_graphs(model.graph) for node in graph.node):
        return None
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    return _Widening(_typed(twin, inputs)).run_inexact()


def _typed(model: onnx.ModelProto, inputs: Sequence[TensorSpec]) -> onnx.ModelProto:
    """Return a network with its sizes bound and its types inferred."""
    bind_shapes(model, inputs)
    try:
        return with_inferred_types(model, data_prop=True)
    except Exception as error:
        raise NoFloat64("its types cannot be inferred") from error


def bind_shapes(model: onnx.ModelProto, inputs: Sequence[TensorSpec]) -> None:
    """Write the sizes of inputs into a model, and remove what it says of other tensors."""
    for graph in all_graphs(model.graph):
        del graph.value_info[:]
        for value in graph.output:
            if value.type.WhichOneof("value") == "tensor_type":
                value.type.tensor_type.ClearField("shape")
    for value, spec in zip(real_inputs(model.graph), inputs, strict=True):
        dims = value.type.tensor_type.shape.dim
        del dims[:]
        value.type.tensor_type.shape.SetInParent()
        for size in spec.shape:
            dims.add().dim_value = size


class _Widening:
    """Widens one network in place."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._opsets = opsets_of(model)
        self._types: dict[str, int] = {}
        self._shapes: Shapes = {}
        for graph in all_graphs(model.graph):
            self._learn(graph)

    def run(self) -> onnx.ModelProto:
        for graph in list(all_graphs(self._model.graph)):
            self._widen_graph(graph)
        return self._model

    def run_inexact(self) -> onnx.ModelProto | None:
        """Widen the `INEXACT` operators alone; None if the types of all of them are unknown."""
        widened = False
        for graph in list(all_graphs(self._model.graph)):
            nodes = list(graph.node)
            del graph.node[:], graph.value_info[:]
            for node in nodes:
                written = self._inside_float64(node) if node.op_type in INEXACT else None
                graph.node.extend([node] if written is None else written)
                widened = widened or written is not None
        return self._model if widened else None

    def _inside_float64(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        kind = self._types.get(node.input[0])
        rewrite = REWRITES.get(node.op_type) if node.domain in ONNX_DOMAINS else None
        if kind not in _NARROW or rewrite is None:
            return None
        (before,), (after,) = node.input, node.output
        node.input[0], node.output[0] = f"{after} takes float64", f"{after} as float64"
        written = rewrite(node, self._shapes, self._opsets.get("", 1))
        if written is None:
            node.input[0], node.output[0] = before, after
            return None
        return [
            helper.make_node("Cast", [before], [f"{after} takes float64"], to=_WIDE),
            *written,
            helper.make_node("Cast", [f"{after} as float64"], [after], to=kind),
        ]

    def _learn(self, graph: onnx.GraphProto) -> None:
        for value in (*graph.value_info, *graph.input, *graph.output):
            if value.type.WhichOneof("value") != "tensor_type":
                continue
            tensor = value.type.tensor_type
            self._types[value.name] = tensor.elem_type
            if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
                self._shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
        for initializer in graph.initializer:
            self._types[initializer.name] = initializer.data_type
            self._shapes[initializer.name] = tuple(initializer.dims)

    def _is_narrow(self, name: str) -> bool:
        return self._types.get(name) in _NARROW

    def _widen_graph(self, graph: onnx.GraphProto) -> None:
        for initializer in graph.initializer:
            _widen_tensor(initializer)
        for value in (*graph.input, *graph.output):
            if (
                value.type.WhichOneof("value") == "tensor_type"
                and value.type.tensor_type.elem_type in _NARROW
            ):
                value.type.tensor_type.elem_type = _WIDE
        del graph.value_info[:]
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            _learn_missing(node, self._types)
            graph.node.extend(self._widen_node(node))

    def _widen_node(self, node: onnx.NodeProto) -> Iterable[onnx.NodeProto]:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            elif (
                node.op_type in _TYPED_BY_ATTRIBUTE
                and attribute.name in ("to", "dtype")
                and attribute.i in _NARROW
            ):
                attribute.i = _WIDE
        if node.op_type == "Constant":
            return [_wide_constant(node)]
        if node.op_type == "ConstantOfShape" and not node.attribute:  # a float32 zero
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
            return [node]
        if node.op_type in _BRANCHES or not any(map(self._is_narrow, (*node.input, *node.output))):
            return [node]
        statistics = node.op_type == "LayerNormalization" and len(node.output) > 1  # always float32
        is_wide = not statistics and node.op_type not in _NARROW_BY_SCHEMA
        is_wide = is_wide and _has_wide_kernel(node.op_type, node.domain, self._version(node))
        if is_wide and node.op_type not in INEXACT:
            return [node]
        rewrite = REWRITES.get(node.op_type) if node.domain in ONNX_DOMAINS else None
        rewritten = rewrite(node, self._shapes, self._opsets.get("", 1)) if rewrite else None
        if rewritten is not None:
            return rewritten
        return [node] if is_wide else self._between_casts(node)

    def _version(self, node: onnx.NodeProto) -> int:
        domain = "" if node.domain == "ai.onnx" else node.domain
        return int(self._opsets.get(domain, 1))

    def _between_casts(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        before, after = [], []
        prefix = node.output[0] or node.output[-1]
        for position, name in enumerate(node.input):
            if self._is_narrow(name):
                short = f"{prefix} takes {position} as float32"
                before.append(helper.make_node("Cast", [name], [short], to=TensorProto.FLOAT))
                node.input[position] = short
        for position, name in enumerate(node.output):
            if self._is_narrow(name):
                short = f"{name} as float32"
                after.append(helper.make_node("Cast", [short], [name], to=_WIDE))
                node.output[position] = short
        return [*before, node, *after]


def _learn_missing(node: onnx.NodeProto, types: dict[str, int]) -> None:
    """Take the type of a node's first input for results whose type is not known, as most operators do.

    ONNX Runtime's own quantisers round to the type of the zero point, and widen to that of the scale.
    """
    decides = {"QuantizeLinear": node.input[2:], "DequantizeLinear": node.input[1:]}.get(node.op_type)
    first = next((types[name] for name in decides or node.input if name in types), None)
    for name in node.output:
        if name and name not in types and first is not None:
            types[name] = first


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        name, values = tensor.name, numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(values, name))


def _wide_constant(node: onnx.NodeProto) -> onnx.NodeProto:
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats"):
            values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            wide = numpy_helper.from_array(np.asarray(values, np.float64), node.output[0])
            return helper.make_node("Constant", [], list(node.output), value=wide)
    return node


@lru_cache(maxsize=4096)
def _has_wide_kernel(operator: str, domain: str, version: int) -> bool:
    """Return whether ONNX Runtime has a float64 kernel of an operator."""
    domain = "" if domain == "ai.onnx" else domain
    if operator in _WIDE_ON_PAPER:
        return False
    try:
        since = onnx.defs.get_schema(operator, version, domain).since_version
    except (onnx.defs.SchemaError, TypeError):  # a version beyond 32 bits is a TypeError
        since = version
    kernels = _kernels().get((operator, domain), [])
    return any(start <= since <= end and wide for start, end, wide in kernels)


@lru_cache(maxsize=1)
def _kernels() -> dict[tuple[str, str], list[tuple[int, int, bool]]]:
    """Return ONNX Runtime's kernels for CPUs by operator and domain: first and last version, and whether in float64."""
    from onnxruntime.capi import _pybind_state  # the only list of its kernels

    kernels: dict[tuple[str, str], list[tuple[int, int, bool]]] = {}
    for kernel in _pybind_state.get_all_opkernel_def():
        if kernel.provider != "CPUExecutionProvider":
            continue
        start, end = kernel.version_range
        wide = any("tensor(double)" in str(types) for types in kernel.type_constraints.values())
        domain = "" if kernel.domain == "ai.onnx" else kernel.domain
        # Without constraints, a kernel takes whatever its operator takes.
        wide |= not kernel.type_constraints and not domain
        kernels.setdefault((kernel.op_name, domain), []).append((start, end, wide))
    return kernels
