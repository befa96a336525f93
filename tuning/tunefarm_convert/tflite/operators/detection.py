"""Operators that choose boxes of objects: each takes the best box that is left, and drops those that overlap it.

The number of boxes to choose is fixed, so this becomes as many rounds. Places that no box takes are zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.flexible_options import FlexibleOptions

_MAX_ROUNDS = 100
_NONE = float(np.finfo(np.float32).min)
"""The score of what can be chosen no more."""
_SMALLEST_AREA = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boxes:
    """Boxes as ONNX tensors: the four sides in rows, top, left, bottom, right; and areas in a row."""

    count: int
    sides: str
    areas: str


def _constant(op: OperatorContext, value: float) -> str:
    return op.writer.weight(np.array(value, np.float32))


def _columns(op: OperatorContext, name: str, axis: int) -> list[str]:
    names = [f"{op.writer.scope}_side" for _ in range(4)]
    return op.writer.nodes("Split", [name, op.writer.ints([1] * 4)], names, axis=axis)


def _boxes(op: OperatorContext, count: int, top: str, left: str, bottom: str, right: str) -> _Boxes:
    """Return boxes of sides that are columns."""
    sides = op.node("Transpose", op.node("Concat", top, left, bottom, right, axis=1), perm=[1, 0])
    return _Boxes(count=count, sides=sides, areas=_areas(op, sides))


def _areas(op: OperatorContext, sides: str) -> str:
    top, left, bottom, right = _columns(op, sides, 0)
    return op.node("Mul", op.node("Sub", bottom, top), op.node("Sub", right, left))


def _overlaps(op: OperatorContext, boxes: _Boxes, chosen: str) -> str:
    """Return the share of each box's union with the chosen one that is in both, a row."""
    own = op.node("Gather", boxes.sides, chosen, axis=1)
    top, left, bottom, right = _columns(op, boxes.sides, 0)
    own_top, own_left, own_bottom, own_right = _columns(op, own, 0)
    height = op.node("Relu", op.node("Sub", op.node("Min", bottom, own_bottom), op.node("Max", top, own_top)))
    width = op.node("Relu", op.node("Sub", op.node("Min", right, own_right), op.node("Max", left, own_left)))
    both = op.node("Mul", height, width)
    areas = op.node("Add", boxes.areas, op.node("Gather", boxes.areas, chosen, axis=1))
    union = op.node("Max", op.node("Sub", areas, both), _constant(op, _SMALLEST_AREA))
    return op.node("Div", both, union)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """What all rounds chose: positions in the scores, and scores; `valid` is 1 where a box was left, else 0."""

    positions: str
    scores: str
    valid: str


def _choose(
    op: OperatorContext, boxes: _Boxes, scores: str, classes: int, rounds: int, suppressed: str, limit: str
) -> _Chosen:
    """Choose boxes.

    Args:
        op: The operator.
        boxes: The boxes.
        scores: Scores of the boxes in each class, classes in rows; `_NONE` for what may not be chosen.
        classes: The number of classes. A box drops only others of its class.
        rounds: How many to choose.
        suppressed: ONNX's comparison of an overlap with the limit that drops a box.
        limit: The largest overlap.
    """
    if not 0 < rounds <= _MAX_ROUNDS:
        raise op.unsupported_form(f"it chooses {rounds} boxes; the limit is {_MAX_ROUNDS}")
    width = op.writer.ints([boxes.count])
    numbers = op.writer.weight(np.arange(boxes.count, dtype=np.int64).reshape(1, -1))
    rows = op.writer.weight(np.arange(classes, dtype=np.int64).reshape(-1, 1))
    none = _constant(op, _NONE)
    positions, best = [], []
    for _ in range(rounds):
        flat = op.node("Reshape", scores, op.writer.ints([classes * boxes.count]))
        position = op.node("ArgMax", flat, axis=0, keepdims=1)
        positions.append(position)
        best.append(op.node("Gather", flat, position, axis=0))
        box = op.node("Mod", position, width) if classes > 1 else position
        dropped = op.node(suppressed, _overlaps(op, boxes, box), limit)
        dropped = op.node("Or", dropped, op.node("Equal", numbers, box))
        if classes > 1:
            own_class = op.node("Equal", rows, op.node("Div", position, width))
            dropped = op.node("And", dropped, own_class)
        scores = op.node("Where", dropped, none, scores)
    joined = op.node("Concat", *best, axis=0) if rounds > 1 else best[0]
    return _Chosen(
        positions=op.node("Concat", *positions, axis=0) if rounds > 1 else positions[0],
        scores=joined,
        valid=op.node("Cast", op.node("Greater", joined, none), to=TensorProto.FLOAT),
    )


def _postprocess(op: OperatorContext) -> None:
    """Decode boxes around anchors, and choose the best ones: how detectors of TensorFlow's end."""
    (count, _), classes_shape = op.need_rank(0, 3)[1:], op.need_rank(1, 3)
    options = FlexibleOptions(op)
    rounds, per_box = options.integer("max_detections"), options.integer("max_classes_per_detection")
    classes = options.integer("num_classes")
    by_class = bool(options.integer("use_regular_nms", 0))
    offset = classes_shape[2] - classes
    if classes_shape[1] != count or offset < 0 or not 0 < per_box <= classes or classes_shape[0] != 1:
        raise op.bad_file(
            f"scores of shape {list(classes_shape)} do not fit {count} boxes and {classes} classes"
        )
    if by_class and options.integer("detections_per_class", 100) < rounds:
        raise op.unsupported_form("it limits the boxes of each class below those of all")
    boxes = _decoded(op, options, count)
    scores = op.values.reshaped(op.index(1), [count, classes_shape[2]])
    if offset:
        ends = [op.writer.ints(values) for values in ([offset], [classes_shape[2]], [1])]
        scores = op.node("Slice", scores, *ends)
    if by_class:
        table, rows = op.node("Transpose", scores, perm=[1, 0]), classes
    else:
        best = op.node("ReduceMax", scores, op.writer.ints([1]), keepdims=1)
        table, rows = op.node("Reshape", best, op.writer.ints([1, count])), 1
    low = _constant(op, options.number("nms_score_threshold"))
    table = op.node("Where", op.node("GreaterOrEqual", table, low), table, _constant(op, _NONE))
    limit = _constant(op, options.number("nms_iou_threshold"))
    chosen = _choose(op, boxes, table, rows, rounds, "Greater", limit)
    positions, per_box = chosen.positions, 1 if by_class else per_box
    if by_class:
        width = op.writer.ints([count])
        numbers = op.node("Reshape", op.node("Div", positions, width), op.writer.ints([rounds, 1]))
        positions, values = op.node("Mod", positions, width), chosen.scores
    else:
        own = op.node("Gather", scores, positions, axis=0)
        names = [f"{op.writer.scope}_{name}" for name in ("scores", "classes")]
        values, numbers = op.writer.nodes("TopK", [own, op.writer.ints([per_box])], names, axis=1)
    column = op.node("Reshape", chosen.valid, op.writer.ints([rounds, 1]))
    corners = op.node("Transpose", op.node("Gather", boxes.sides, positions, axis=1), perm=[1, 0])
    corners = op.node("Reshape", op.node("Mul", corners, column), op.writer.ints([rounds, 1, 4]))
    corners = op.node("Expand", corners, op.writer.ints([rounds, per_box, 4]))
    values = op.node("Mul", op.node("Reshape", values, op.writer.ints([rounds, per_box])), column)
    numbers = op.node("Mul", op.node("Cast", numbers, to=TensorProto.FLOAT), column)
    total = op.node("ReduceSum", chosen.valid, op.writer.ints([0]), keepdims=1)
    sizes = [[1, rounds * per_box, 4], [1, rounds * per_box], [1, rounds * per_box], [1]]
    for position, (result, shape) in enumerate(zip((corners, numbers, values, total), sizes, strict=True)):
        op.values.set_shape(op.output(position), tuple(shape))
        op.finish(op.node("Reshape", result, op.writer.ints(shape)), position=position)


def _decoded(op: OperatorContext, options: FlexibleOptions, count: int) -> _Boxes:
    """Return the boxes that are coded as differences from anchors."""
    if op.shape(2) != (count, 4):
        raise op.bad_file(f"anchors of shape {list(op.shape(2))} for {count} boxes")
    coded = _columns(op, op.values.reshaped(op.index(0), [count, 4]), 1)
    scales = [_constant(op, options.number(f"{name}_scale")) for name in "yxhw"]
    y, x, height, width = (op.node("Div", part, scale) for part, scale in zip(coded, scales, strict=True))
    anchor_y, anchor_x, anchor_height, anchor_width = _columns(op, op.values.get(op.index(2)), 1)
    half = _constant(op, 0.5)
    sides = []
    for center, extent, anchor, size in (
        (y, height, anchor_y, anchor_height),
        (x, width, anchor_x, anchor_width),
    ):
        middle = op.node("Add", op.node("Mul", center, size), anchor)
        reach = op.node("Mul", op.node("Mul", op.node("Exp", extent), size), half)
        sides.append((op.node("Sub", middle, reach), op.node("Add", middle, reach)))
    (top, bottom), (left, right) = sides
    return _boxes(op, count, top, left, bottom, right)


def _suppression(op: OperatorContext) -> None:
    """Choose boxes by their scores: `NON_MAX_SUPPRESSION_V4` and, without soft suppression, `NON_MAX_SUPPRESSION_V5`."""
    is_fifth = op.operator.kind.endswith("V5")
    count = op.need_rank(0, 2)[0]
    (rounds,) = op.ints(2, "the number of boxes")
    if is_fifth and op.constant(5, "the width of soft suppression").any():
        raise op.unsupported_form("soft suppression is not supported")
    if op.shape(0) != (count, 4) or op.shape(1) != (count,):
        raise op.bad_file(f"boxes of shape {list(op.shape(0))} do not fit scores of {list(op.shape(1))}")
    first, second, third, fourth = _columns(op, op.values.get(op.index(0)), 1)
    ends = [op.node(kind, *pair) for pair in ((first, third), (second, fourth)) for kind in ("Min", "Max")]
    boxes = _boxes(op, count, ends[0], ends[2], ends[1], ends[3])
    scores = op.values.reshaped(op.index(1), [1, count])
    high = op.node("Greater", scores, op.values.reshaped(op.index(4), [1, 1]))
    table = op.node("Where", high, scores, _constant(op, _NONE))
    chosen = _choose(op, boxes, table, 1, rounds, "GreaterOrEqual", op.values.reshaped(op.index(3), [1, 1]))
    valid = op.node("Cast", chosen.valid, to=TensorProto.INT32)
    total = op.node("ReduceSum", valid, op.writer.ints([0]), keepdims=0)
    numbers = op.node("Mul", op.node("Cast", chosen.positions, to=TensorProto.INT32), valid)
    results = [numbers, *([op.node("Mul", chosen.scores, chosen.valid)] if is_fifth else []), total]
    for position, result in enumerate(results):
        op.values.set_shape(op.output(position), () if position == len(results) - 1 else (rounds,))
        op.finish(result, position=position)


CONVERTERS: Mapping[str, Converter] = {
    "custom operator TFLite_Detection_PostProcess": _postprocess,
    "NON_MAX_SUPPRESSION_V4": _suppression,
    "NON_MAX_SUPPRESSION_V5": _suppression,
}
