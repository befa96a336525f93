"""Run a bound network once in ONNX Runtime, so that what cannot run is refused at its import and not after its search."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork
from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS, ancestors
from tunefarm_tuning.reference.random_inputs import random_inputs

Run = Callable[[dict[str, NDArray[Any]]], object]
"""Runs the network in ONNX Runtime on arrays by input name."""

_AT_RUN = re.compile(
    r"running (?P<operator>\S+) node\. Name:'(?P<node>.*?)' Status Message: (?P<reason>.*)", re.DOTALL
)
_AT_LOAD = re.compile(
    r"Node \((?P<node>.*?)\) Op \((?P<operator>\S+?)\) (?:\[\w+\] )?(?P<reason>.*)", re.DOTALL
)
_SOURCE = re.compile(r"/onnxruntime_src/\S*:\d+ (?:(?:\w+ )?onnxruntime::.*?\)(?: \[with .*?\])? )?")
"""Where ONNX Runtime's own code noticed it: no help to anybody else."""
_OUT_OF_MEMORY = re.compile(
    r"[Ff]ailed to allocate|bad.?alloc|BFCArena|out of memory|require more than \d+ bytes"
)

_INDEXING = frozenset({"Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND"})
_FIXES = {
    **dict.fromkeys(
        _INDEXING, "use indices within the tensor's dimension (from 0, or from the end with negative ones)"
    ),
    **dict.fromkeys(
        ("Conv", "ConvTranspose", "ConvInteger"),
        "kernel_shape must be that of the weight, and channels must fit; leave kernel_shape out, or correct it",
    ),
    **dict.fromkeys(
        ("ConstantOfShape", "Expand", "Tile", "Range", "OneHot"),
        "its sizes must be above zero, and the result must fit into memory",
    ),
    **dict.fromkeys(
        ("Reshape", "Flatten"),
        "the new shape must have as many elements: bind other sizes, or export with a computed one (-1)",
    ),
    **dict.fromkeys(
        ("Concat", "Split", "Softmax", "Squeeze", "Unsqueeze", "Transpose"),
        "its axis must be one of the tensor's, and the other dimensions must be equal",
    ),
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Pow", "Where", "MatMul", "Gemm"),
        "its inputs must have shapes that fit each other: bind other sizes with --shape",
    ),
}
_SIZES_AT = {
    **dict.fromkeys(
        (
            "Expand",
            "Reshape",
            "Tile",
            "Pad",
            "OneHot",
            "Upsample",
            "AffineGrid",
            "CenterCropPad",
            "DFT",
            "Split",
        ),
        (1,),
    ),
    **dict.fromkeys(("Resize", "Slice"), (1, 2, 3, 4)),
    **dict.fromkeys(("ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow"), (0,)),
    **dict.fromkeys(("Range",), (0, 1, 2)),
}
"""Operands that decide the size of a node's output."""
_SIZES_ALONE = frozenset({"Shape", "Size"})
"""Operators that read no value of their input."""
_SIZED_BY_VALUES = frozenset({
    "Compress", "ConcatFromSequence", "If", "Loop", "NonMaxSuppression", "NonZero", "Scan", "SequenceAt", "SplitToSequence",
    "TopK", "Unique",
})  # fmt: skip
"""Operators whose results may have other sizes for other values, as any of another domain may."""
_MAX_SETTING = 16
"""Most elements of an input that may be a setting."""
_DIVISION = re.compile(r"[Dd]ivision by zero")
_DIVISION_FIX = "make its divisor other than zero"
_ANY_FIX = "correct the node, or bind other sizes with --shape"


def run_on_drawn_inputs(run: Run, network: BoundNetwork) -> bool:
    """Run a network on random inputs; if that fails, with all integers 0, then with all integers 1, as the reference does.

    A network that fails by the values of its integer inputs is not refused: real samples may be right.

    Returns:
        Whether it ran.

    Raises:
        InvalidModelError: index-out-of-range or cannot-run.
        MemoryError: If ONNX Runtime cannot allocate its tensors.
    """
    failure: Exception | None = None
    for feeds in _attempts(network):
        try:
            run(feeds)
            return True
        except MemoryError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise MemoryError from error
            failure = failure or error
    assert failure is not None
    if not _may_depend_on_values(network, str(failure)):
        refused = run_error(failure)
        names = _sizing_inputs(network)
        hint = (
            f"; sizes in the network depend on '{clean(names[0], 60)}', bind it: --value {clean(names[0], 60)}=..."
            if names
            else ""
        )
        raise InvalidModelError(refused.message + hint, code=refused.code, **refused.fields) from failure
    return False


def _sizing_inputs(network: BoundNetwork) -> list[str]:
    """Return the names of small inputs that sizes inside the network are computed of."""
    graph = network.model.graph
    deciding = ancestors(graph, _sizing_operands(graph), not_through=_SIZES_ALONE)
    return [
        spec.name for spec in network.inputs if spec.name in deciding and prod(spec.shape) <= _MAX_SETTING
    ]


def _sizing_operands(graph: onnx.GraphProto) -> list[str]:
    return [
        name
        for node in graph.node
        for at in _SIZES_AT.get(node.op_type, ())
        for name in node.input[at : at + 1]
    ]


def is_out_of_memory(error: Exception) -> bool:
    """Return whether ONNX Runtime says that it could not allocate a tensor."""
    return _OUT_OF_MEMORY.search(str(error)) is not None


def run_error(error: Exception) -> InvalidModelError:
    """Return the error of a network that ONNX Runtime loads, but cannot run."""
    operator, node, reason = failed_node(str(error))
    is_index = operator in _INDEXING
    where = f"node {node} ({operator})" if operator else "the model"
    fix = _DIVISION_FIX if _DIVISION.search(reason) else _FIXES.get(operator, _ANY_FIX)
    return InvalidModelError(
        f"ONNX Runtime cannot run {where}: {reason}; {fix}",
        code="index-out-of-range" if is_index else "cannot-run",
        **({"operator": operator, "node": node.strip("'")} if operator else {}),
    )


def load_fix(message: str) -> str:
    """Return how to mend what ONNX Runtime says of a node when it loads the model, as a sentence's end; empty if it names none."""
    operator = failed_node(message)[0]
    return f"; {_FIXES[operator]}" if operator in _FIXES else ""


def failed_node(message: str) -> tuple[str, str, str]:
    """Return operator, name and reason in a message of ONNX Runtime; the first two are empty if it names no node."""
    match = _AT_RUN.search(message) or _AT_LOAD.search(message)
    if match is None:
        return "", "", _reason(message)
    return clean(match["operator"], 60), f"'{clean(match['node'], 100)}'", _reason(match["reason"])


def name_nodes(model: onnx.ModelProto) -> None:
    """Name the nodes that have no name after their first output, so that messages tell which is meant."""
    for node in model.graph.node:
        node.name = node.name or next(iter(node.output), "")


def _attempts(network: BoundNetwork) -> Iterator[dict[str, NDArray[Any]]]:
    names = [spec.name for spec in network.inputs]
    arrays = random_inputs(network.inputs, seed=0)
    yield dict(zip(names, arrays, strict=True))
    if any(array.dtype.kind in "iu" for array in arrays):
        for value in (0, 1):
            filled = [np.full_like(a, value) if a.dtype.kind in "iu" else a for a in arrays]
            yield dict(zip(names, filled, strict=True))


def _may_depend_on_values(network: BoundNetwork, message: str) -> bool:
    """Return whether what failed reads indices or sizes that are computed of an integer input."""
    operator, name, _ = failed_node(message)
    node = next((node for node in network.model.graph.node if f"'{clean(node.name, 100)}'" == name), None)
    if node is None or not operator:
        return False
    graph = network.model.graph
    integers = {spec.name for spec in network.inputs if spec.dtype.startswith(("int", "uint"))}
    if integers & ancestors(graph, node.input[1:], not_through=_SIZES_ALONE):
        return True
    return _sizes_depend_on(graph, integers) and bool(integers & ancestors(graph, node.input[1:]))


def _sizes_depend_on(graph: onnx.GraphProto, inputs: Collection[str]) -> bool:
    """Return whether a tensor inside may have another size by the values of some inputs."""
    if any(node.op_type in _SIZED_BY_VALUES or node.domain not in ONNX_DOMAINS for node in graph.node):
        return True
    return not ancestors(graph, _sizing_operands(graph), not_through=_SIZES_ALONE).isdisjoint(inputs)


def _reason(text: str) -> str:
    return clean(_SOURCE.sub("", " ".join(text.split())), 300).rstrip(".")
