"""The networks of the GPU benchmark, in float32 and in float16, with seeded random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from benchmarks.models.networks.encoder import build_encoder
from benchmarks.models.networks.graph import write_network
from benchmarks.models.networks.resnet50 import build_resnet50
from onnx import TensorProto, numpy_helper

BERT_LAYERS, BERT_HIDDEN, BERT_HEADS, BERT_FEED_FORWARD = 12, 768, 12, 3072

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": build_resnet50,
    "bert": partial(
        build_encoder,
        layers=BERT_LAYERS,
        hidden=BERT_HIDDEN,
        heads=BERT_HEADS,
        feed_forward=BERT_FEED_FORWARD,
    ),
}
"""By name: ResNet-50 for an image of 224x224, and BERT-base's encoder for 128 words; batch 1 both."""

DTYPES = ("float32", "float16")


def network_file(name: str, dtype: str, folder: Path) -> Path:
    """Return a network's ONNX file in a folder, written if it is not there."""
    path = folder / f"{name}-{dtype}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        model = NETWORKS[name]()
        if dtype == "float16":
            model = to_half(model)
        # Write the file atomically, so that a killed run leaves no partial network.
        write_network(model, path.with_suffix(".part")).replace(path)
    return path


def weights_file(network: Path) -> Path:
    """Write a network's weights beside it as arrays by name (.npz) for its PyTorch twin; return the file."""
    path = network.with_suffix(".npz")
    if not path.exists():
        model = onnx.load(str(network))
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        part = path.with_suffix(".part.npz")
        np.savez(part, **arrays)  # type: ignore[arg-type]
        part.replace(path)
    return path


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network of float32 as one of float16: inputs, weights, outputs and all between."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    graph = half.graph
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(_half(tensor))
    for value in (*graph.input, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT:
            kind.elem_type = TensorProto.FLOAT16
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
            if attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT:
                attribute.t.CopyFrom(_half(attribute.t))
    graph.name = f"{graph.name}-float16"
    onnx.checker.check_model(half)
    return half


def _half(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
