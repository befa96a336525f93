"""`Scan`: all steps at once if none depends on another, else one after the other; their number is a dimension of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.control_flow.batched_scans import batched_body
from tunefarm_tuning.frontend.onnx.control_flow.flat_graph import FlatGraph
from tunefarm_tuning.frontend.onnx.control_flow.inner_graphs import (
    Inline,
    describe,
    inner_graph,
    int_attribute,
    ints_attribute,
)
from tunefarm_tuning.frontend.onnx.control_flow.loops import refuse_long, stack

_FIRST_OPSET = 9
"""`Scan` of opset 8 has another form."""


def unroll_scan(flat: FlatGraph, node: onnx.NodeProto, inputs: Sequence[str], inline: Inline) -> list[str]:
    """Add the steps of a `Scan` to `flat`; return the names of its results.

    Steps that do not depend on each other are computed together, however many there are.

    Raises:
        InvalidModelError: unknown-loop, unsupported-operator, too-large, zero-size or invalid-onnx.
    """
    body = inner_graph(node, "body")
    if flat.opset < _FIRST_OPSET:
        raise _refused(
            node,
            f"is of opset {flat.opset}; export the model with opset {_FIRST_OPSET} or newer",
            "unsupported-operator",
        )
    scanned = int_attribute(node, "num_scan_inputs")
    if not 0 < scanned <= len(inputs):
        raise _refused(node, "does not scan any input", "invalid-onnx")
    carried, sequences = list(inputs[: len(inputs) - scanned]), inputs[len(inputs) - scanned :]
    axes = ints_attribute(node, "scan_input_axes", scanned)
    backward = ints_attribute(node, "scan_input_directions", scanned)
    if len(body.output) < len(carried):
        raise _refused(
            node, f"carries {len(carried)} tensors, but its body returns {len(body.output)}", "invalid-onnx"
        )
    collects = len(body.output) - len(carried)
    out_axes = ints_attribute(node, "scan_output_axes", collects)
    out_backward = ints_attribute(node, "scan_output_directions", collects)
    steps = _steps(flat, node, sequences, axes) if scanned > 1 or flat.shape(sequences[0]) else None
    if (
        not any((*axes, *backward, *out_axes, *out_backward))
        and steps != 0
        and len(body.input) == len(inputs)
    ):
        ranks = [*(flat.rank(name) for name in carried), *(_row_rank(flat, name) for name in sequences)]
        batched = batched_body(body, ranks, len(carried), flat.opset)
        if batched is not None:
            return inline(batched, inputs)
    if steps is None:
        steps = _steps(flat, node, sequences, axes)
    refuse_long(node, steps, len(body.node) + scanned)
    collected: list[list[str]] = [[] for _ in range(collects)]
    for step in range(steps):
        rows = []
        for name, axis, is_backward in zip(sequences, axes, backward, strict=True):
            position = np.array(steps - 1 - step if is_backward else step, np.int64)
            index = flat.add_constant(position, f"{node.name}/step")
            rows.append(flat.make("Gather", [name, index], f"{name}/row", axis=axis))
        results = inline(body, [*carried, *rows])
        carried, outputs = results[: len(carried)], results[len(carried) :]
        for output, names in zip(outputs, collected, strict=True):
            names.append(output)
    return [
        *carried,
        *(
            stack(flat, node, names[::-1] if is_backward else names, axis)
            for names, axis, is_backward in zip(collected, out_axes, out_backward, strict=True)
        ),
    ]


def _steps(flat: FlatGraph, node: onnx.NodeProto, sequences: Sequence[str], axes: Sequence[int]) -> int:
    lengths = set()
    for name, axis in zip(sequences, axes, strict=True):
        shape = flat.shape(name)
        if shape is None:
            raise _refused(
                node,
                "walks along a tensor whose length is known at run time only; export the model with a fixed length, or "
                "cut it before the scan",
                "unknown-loop",
            )
        if not -len(shape) <= axis < len(shape):
            raise _refused(
                node, f"walks along axis {axis} of a tensor of {len(shape)} dimensions", "invalid-onnx"
            )
        lengths.add(shape[axis])
    if len(lengths) != 1:
        raise _refused(node, f"walks along tensors of different lengths: {sorted(lengths)}", "invalid-onnx")
    return lengths.pop()


def _row_rank(flat: FlatGraph, sequence: str) -> int | None:
    rank = flat.rank(sequence)
    return None if rank is None else rank - 1


def _refused(node: onnx.NodeProto, why: str, code: str) -> InvalidModelError:
    return InvalidModelError(
        f"{describe(node)} {why}", code=code, operator=node.op_type, node=clean(node.name, 100)
    )
