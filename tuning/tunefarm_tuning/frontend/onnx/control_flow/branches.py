"""`If`: the branch that is known to be taken, or both branches and a selection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.control_flow.flat_graph import FlatGraph
from tunefarm_tuning.frontend.onnx.control_flow.inner_graphs import (
    Inline,
    describe,
    inner_graph,
    proposed_value,
)
from tunefarm_tuning.frontend.onnx.operators import is_supported

_INTEGERS = frozenset({
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
})  # fmt: skip
_INDEXING = {
    "Gather": 1,
    "GatherElements": 1,
    "GatherND": 1,
    "ScatterElements": 1,
    "ScatterND": 1,
    "Scatter": 1,
}
"""The position of the indices among the inputs."""
_DIVISIONS = ("Div", "Mod")
_ALONG_AN_AXIS = ("Gather", "GatherElements")
_SELECTED_AS = {
    TensorProto.BOOL: TensorProto.UINT8,
    TensorProto.INT16: TensorProto.INT32,
    TensorProto.UINT16: TensorProto.INT32,
}
"""ONNX Runtime selects these element types in a wider one only."""
_NOT_SELECTED = (TensorProto.UINT64,)
"""ONNX Runtime selects these in none."""
_WHERE_OPSET = 9
_GUARD_OPSET = 11
"""The first opset whose `Equal` takes integers of any size."""
VALUE_HINT = "--value "


def resolve_if(flat: FlatGraph, node: onnx.NodeProto, inputs: Sequence[str], inline: Inline) -> list[str]:
    """Add what an `If` computes to `flat`; return the names of its results.

    If the run decides, both branches are computed and each result is selected. So both need results of equal shapes and
    dtypes, and neither may do what fails for the inputs of the other. Where these could divide integers by zero, or gather
    along an axis beyond its end, nodes are added that keep divisors and indices within bounds, and leave valid ones unchanged.

    Raises:
        InvalidModelError: unequal-branches, unsupported-operator or invalid-onnx.
    """
    branches = inner_graph(node, "then_branch"), inner_graph(node, "else_branch")
    condition = flat.value(inputs[0])
    if condition is not None:
        return inline(branches[0 if condition.any() else 1], [])
    start, checkpoint = flat.size, flat.checkpoint()
    hint = proposed_value(flat, inputs[0], "takes the same branch")
    try:
        then_results, else_results = (inline(branch, []) for branch in branches)
    except InvalidModelError as error:
        if not hint or VALUE_HINT in error.message:
            raise
        raise InvalidModelError(
            f"{describe(node)} depends on the data, so both of its branches would be computed; but {error.message}{hint}",
            code=error.code,
            operator="If",
            node=clean(node.name, 100),
        ) from error
    if flat.opset >= _GUARD_OPSET:
        _guard(flat, checkpoint)
    _refuse_unguarded(flat, node, start, hint)
    if flat.opset < _WHERE_OPSET:
        raise InvalidModelError(
            f"{describe(node)} depends on the data, which needs opset {_WHERE_OPSET} or newer, but the model has opset "
            f"{flat.opset}{hint}",
            code="unsupported-operator",
            operator="If",
            node=clean(node.name, 100),
        )
    return _selected(
        flat, node, inputs[0], list(zip(then_results, else_results, strict=False))[: len(node.output)], hint
    )


def _selected(
    flat: FlatGraph, node: onnx.NodeProto, condition: str, pairs: Sequence[tuple[str, str]], hint: str
) -> list[str]:
    scalar = ""
    results = []
    for position, (then, other) in enumerate(pairs):
        if then == other:
            results.append(then)
            continue
        _refuse_unequal(flat, node, position, (then, other), hint)
        if not scalar and flat.shape(condition) == ():
            scalar = condition
        if not scalar:
            shape = flat.add_constant(np.zeros([0], np.int64), f"{node.name}/no_dimensions")
            scalar = flat.make("Reshape", [condition, shape], f"{node.name}/condition")
        results.append(_where(flat, scalar, then, other, f"{node.output[position]}/selected"))
    return results


def _where(flat: FlatGraph, condition: str, then: str, other: str, stem: str) -> str:
    kind = flat.element_type(then)
    wide = _SELECTED_AS.get(kind) if kind is not None else None
    if wide is None:
        return flat.make("Where", [condition, then, other], stem)
    sides = [flat.make("Cast", [name], f"{stem}/wide", to=wide) for name in (then, other)]
    return flat.make("Cast", [flat.make("Where", [condition, *sides], f"{stem}/wide")], stem, to=kind)


def _refuse_unequal(
    flat: FlatGraph, node: onnx.NodeProto, position: int, pair: tuple[str, str], hint: str
) -> None:
    types = [flat.element_type(name) for name in pair]
    shapes = [flat.shape(name) for name in pair]
    if types[0] == types[1] and types[0] is not None and shapes[0] == shapes[1] and shapes[0] is not None:
        return
    texts = [
        ("?" if kind is None else str(TensorProto.DataType.Name(kind)).lower())
        + (f" {list(shape)}" if shape is not None else " of unknown shape")
        for kind, shape in zip(types, shapes, strict=True)
    ]
    raise InvalidModelError(
        f"result {position} of {describe(node)} is {texts[0]} in one branch and {texts[1]} in the other; if the data "
        f"decide, both must have the same known shape and dtype{hint or '; export the model with one of the branches'}",
        code="unequal-branches",
        operator="If",
        node=clean(node.name, 100),
    )


def _guard(flat: FlatGraph, checkpoint: tuple[int, int]) -> None:
    """Add the nodes since a checkpoint anew, with divisors that cannot fail and indices within their axes."""
    nodes = flat.nodes_from(checkpoint[0])
    if not any(inner.op_type in (*_DIVISIONS, *_ALONG_AN_AXIS) for inner in nodes):
        return
    flat.back_to(checkpoint)
    for inner in nodes:
        if inner.op_type in _DIVISIONS and flat.element_type(inner.input[0]) in _INTEGERS:
            inner.input[1] = _safe_divisors(flat, inner)
        elif inner.op_type in _ALONG_AN_AXIS:
            inner.input[1] = _within_axis(flat, inner)
        flat.add(inner)


def _safe_divisors(flat: FlatGraph, node: onnx.NodeProto) -> str:
    """Return the name of a division's divisors, with 1 in place of 0, and of -1 below the smallest number, whose quotient overflows."""
    dividends, divisors = map(str, node.input)
    kind = flat.element_type(divisors)
    if kind in (None, *_NOT_SELECTED) or flat.value(divisors) is not None or flat.is_guarded(divisors):
        return divisors
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)

    def equals(tensor: str, number: int) -> str:
        constant = flat.add_constant(np.array(number, dtype), f"{divisors}/{number}")
        return flat.make("Equal", [tensor, constant], f"{tensor}/is")

    fails = equals(divisors, 0)
    if smallest := int(np.iinfo(dtype).min):
        overflows = flat.make(
            "And", [equals(divisors, -1), equals(dividends, smallest)], f"{divisors}/overflows"
        )
        fails = flat.make("Or", [fails, overflows], f"{divisors}/fails")
    unit = flat.add_constant(np.array(1, dtype), f"{divisors}/1")
    return flat.guarded(_where(flat, fails, unit, divisors, f"{divisors}/guarded"))


def _within_axis(flat: FlatGraph, node: onnx.NodeProto) -> str:
    """Return the name of a node's indices, modulo the size of its axis: `-1` is the last one, as before."""
    indices: str = node.input[1]
    shape = flat.shape(node.input[0])
    kind = flat.element_type(indices)
    if not shape or kind is None or _is_harmless(flat, indices):
        return indices
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if not -len(shape) <= axis < len(shape) or not shape[axis]:
        return indices
    size = np.array(shape[axis], onnx.helper.tensor_dtype_to_np_dtype(kind))
    size_name = flat.add_constant(size, f"{indices}/size")
    return flat.guarded(flat.make("Mod", [indices, size_name], f"{indices}/guarded"))


def _refuse_unguarded(flat: FlatGraph, node: onnx.NodeProto, start: int, hint: str) -> None:
    """Refuse branches that must not run unless they are taken: generated code would crash, or read beyond a tensor."""
    for inner in flat.nodes_from(start):
        if not is_supported(inner.domain, inner.op_type):
            raise InvalidModelError(
                f"{describe(node)} depends on the data, so both of its branches would be computed; but "
                f"{describe(inner)} is not supported by TVM's ONNX importer{hint}",
                code="unsupported-operator",
                operator=clean(inner.op_type, 60),
                node=clean(inner.name, 100),
                opset=flat.opset,
            )
        if inner.op_type in _DIVISIONS and flat.element_type(inner.input[0]) in _INTEGERS:
            risky = flat.value(inner.input[1]) is None and not flat.is_guarded(inner.input[1])
        else:
            indices = inner.input[_INDEXING[inner.op_type]] if inner.op_type in _INDEXING else ""
            risky = bool(indices) and not _is_harmless(flat, indices)
        if risky:
            raise InvalidModelError(
                f"{describe(node)} depends on the data, so both of its branches would be computed; but "
                f"{describe(inner)} may fail with the inputs of the other branch (a division by zero, an index out of "
                f"range){hint or '; export the model with one of the branches'}",
                code="unsupported-operator",
                operator="If",
                node=clean(node.name, 100),
            )


def _is_harmless(flat: FlatGraph, indices: str) -> bool:
    """Return whether indices are constant, the caller's own, or guarded."""
    return flat.value(indices) is not None or flat.is_input(indices) or flat.is_guarded(indices)
