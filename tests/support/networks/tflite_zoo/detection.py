"""Operators that choose boxes of objects."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from tflite_writer import scattered

from tflite_zoo.cases import ZOO, Case, Net, case

_COUNT, _CLASSES = 24, 3
_SCALES = {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0}


def _anchors(net: Net) -> int:
    """Return anchors that overlap: on a grid of 6 by 4, each a third of the image."""
    rows, columns = np.mgrid[0:6, 0:4]
    places = np.stack([rows.ravel() / 6, columns.ravel() / 4, np.full(24, 0.3), np.full(24, 0.3)], 1)
    return net.constant(places.astype(np.float32))


def _postprocess(
    name: str, rounds: int, *, per_box: int = 1, regular: bool = False, threshold: float = 0.1, kept: int = 0
) -> None:
    """LiteRT leaves anything behind the boxes that it finds: of few boxes, the first `kept` are given."""

    def make() -> Case:
        net = Net()
        options = _SCALES | {
            "max_detections": rounds,
            "max_classes_per_detection": per_box,
            "detections_per_class": 50,
            "use_regular_nms": regular,
            "nms_score_threshold": threshold,
            "nms_iou_threshold": 0.4,
            "num_classes": _CLASSES,
        }
        boxes = net.input((1, _COUNT, 4))
        scores = net.op("LOGISTIC", [net.input((1, _COUNT, _CLASSES + 1))], (1, _COUNT, _CLASSES + 1))
        slots = rounds * per_box
        outputs = [net.tensor(shape) for shape in ((1, slots, 4), (1, slots), (1, slots), (1,))]
        net.op_of(
            "CUSTOM",
            [boxes, scores, _anchors(net)],
            outputs,
            custom="TFLite_Detection_PostProcess",
            custom_options=bytes(flexbuffers.Dumps(options)),
        )
        for i, tensor in enumerate(outputs[:3] if kept else ()):
            shape = (1, kept, 4)[: 2 if i else 3]
            inputs = [tensor, net.ints(*[0] * len(shape)), net.ints(*shape)]
            outputs[i] = net.op("SLICE", inputs, shape, options="SliceOptions")
        return net.case(*outputs)

    ZOO[f"detections_{name}"] = make


_postprocess("of_any_class", 6)
_postprocess("of_two_classes_each", 4, per_box=2)
_postprocess("of_few_boxes", 24, threshold=0.93, kept=3)
_postprocess("by_class", 8, regular=True)


def _suppression(name: str, version: int, rounds: int, threshold: float) -> None:
    def make() -> Case:
        net = Net()
        corners = np.sort(scattered((16, 2, 2), 8), axis=1)[:, ::-1].reshape(16, 4)
        start = net.constant(np.ascontiguousarray(corners))
        boxes = net.op(
            "MUL",
            [net.input((16, 4)), net.constant(np.full((1, 1), 0.1, np.float32))],
            (16, 4),
            options="MulOptions",
        )
        boxes = net.op("ADD", [boxes, start], (16, 4), options="AddOptions")
        limits = [net.constant(np.array(value, np.float32)) for value in (0.4, threshold)]
        inputs = [boxes, net.input((16,)), net.constant(np.array(rounds, np.int32)), *limits]
        outputs = [net.tensor((rounds,), "int32")]
        if version == 5:
            inputs.append(net.constant(np.array(0, np.float32)))
            outputs.append(net.tensor((rounds,)))
        outputs.append(net.tensor((), "int32"))
        net.op_of(f"NON_MAX_SUPPRESSION_V{version}", inputs, outputs, f"NonMaxSuppressionV{version}Options")
        return net.case(*outputs)

    ZOO[name] = make


_suppression("suppression", 4, 5, -10.0)
_suppression("suppression_of_few_boxes", 4, 12, 0.0)
_suppression("suppression_with_scores", 5, 10, 0.5)


@case
def buckets() -> Case:
    net = Net()
    fields: dict[str, Any] = {"Boundaries": [-1.5, 0.0, 0.5, 2.0]}
    return net.case(net.op("BUCKETIZE", [net.input((4, 6))], (4, 6), "int32", "BucketizeOptions", fields))


def rounded(low: float, high: float, bits: int) -> Case:
    net = Net()
    fields: dict[str, Any] = {"Min": low, "Max": high, "NumBits": bits}
    return net.case(
        net.op("FAKE_QUANT", [net.input((6, 8))], (6, 8), options="FakeQuantOptions", fields=fields)
    )


ZOO["rounded_to_8_bits"] = partial(rounded, -1.1, 2.3, 8)
ZOO["rounded_to_4_bits"] = partial(rounded, 0.0, 2.5, 4)


@case
def a_composite() -> Case:
    net = Net()
    x = net.input((2, 3))
    inner = net.subgraph()
    inner._inputs.append(inner.tensor((2, 3)))
    squares = inner.op("SQUARE", [inner._inputs[0]], (2, 3))
    inner.returns(inner.op("EXP", [squares], (2, 3)))
    fields: dict[str, Any] = {"Name": "odml.something", "DecompositionSubgraphIndex": inner.number}
    fields["CompositeAttributes"] = []
    y = net.op("STABLEHLO_COMPOSITE", [x], (2, 3), "float32", "StableHLOCompositeOptions", fields)
    return net.case(net.op("NEG", [y], (2, 3)))
