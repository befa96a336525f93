"""A small U-Net of a diffusion model, as torch exports those of diffusers: open in everything that a user may choose."""

from __future__ import annotations

import numpy as np
import onnx
from onnx_models import GraphBuilder

_CHANNELS, _HEADS, _TEXT = 8, 2, 6


def diffusion_net() -> onnx.ModelProto:
    """A convolution down, attention to the image and to a text, `Resize` up by twice, and a skip connection."""
    g = GraphBuilder()
    image = g.input("sample", ["batch", 4, "height", "width"])
    text = g.input("text", ["batch", "sequence", _TEXT])
    skip = g.node("Relu", _group_norm(g, g.conv(image, 4, _CHANNELS)))
    down = g.conv(skip, _CHANNELS, _CHANNELS, stride=2)
    hidden = g.conv(_group_norm(g, down), _CHANNELS, _CHANNELS, kernel=1)
    batch, channels, height, width = (_size(g, hidden, axis) for axis in range(4))
    positions = g.node("Mul", height, width)
    tokens = g.node("Transpose", hidden, perm=[0, 2, 3, 1])
    tokens = g.node("Reshape", tokens, g.node("Concat", batch, positions, channels, axis=0))
    tokens = g.node("Add", tokens, _attention(g, tokens, tokens, _CHANNELS))
    tokens = g.node("Add", tokens, _attention(g, tokens, text, _TEXT))
    hidden = g.node("Reshape", tokens, g.node("Concat", batch, height, width, channels, axis=0))
    hidden = g.node("Transpose", hidden, perm=[0, 3, 1, 2])
    up = _twice(g, g.node("Add", down, g.conv(hidden, _CHANNELS, _CHANNELS, kernel=1)))
    up = g.node("Concat", g.conv(up, _CHANNELS, _CHANNELS), skip, axis=1)
    g.output(g.conv(up, 2 * _CHANNELS, 4), ["batch", 4, "h", "w"])
    return g.model()


def video_net() -> onnx.ModelProto:
    """A network that halves and doubles each frame of a video, of any number of frames."""
    g = GraphBuilder()
    video = g.input("video", ["batch", "frames", 4, "height", "width"])
    sizes = [_size(g, video, axis) for axis in range(5)]
    images = g.node("Mul", sizes[0], sizes[1])
    skip = g.node("Reshape", video, g.node("Concat", images, *sizes[2:], axis=0))
    up = _twice(g, g.conv(skip, 4, 4, stride=2))
    result = g.conv(g.node("Concat", up, skip, axis=1), 8, 4)
    g.output(g.node("Reshape", result, g.node("Concat", *sizes, axis=0)), ["batch", "frames", 4, "h", "w"])
    return g.model()


def _size(g: GraphBuilder, x: str, axis: int) -> str:
    return str(g.node("Slice", g.node("Shape", x), g.ints(axis), g.ints(axis + 1)))


def _twice(g: GraphBuilder, x: str) -> str:
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    mode = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return str(g.node("Resize", x, "", scales, mode="nearest", **mode))


def _group_norm(g: GraphBuilder, x: str) -> str:
    groups = g.node("Reshape", x, g.ints(0, 2, -1))
    scale, bias = (g.constant(np.full(2, value, np.float32)) for value in (1, 0))
    normal = g.node("Reshape", g.node("InstanceNormalization", groups, scale, bias), g.node("Shape", x))
    return str(g.node("Add", g.node("Mul", normal, g.weight(_CHANNELS, 1, 1)), g.weight(_CHANNELS, 1, 1)))


def _attention(g: GraphBuilder, x: str, context: str, features: int) -> str:
    batch = _size(g, context, 0)
    width = _CHANNELS // _HEADS

    def heads(tokens: str, features: int) -> str:
        product = g.node("MatMul", tokens, g.weight(features, _CHANNELS))
        shape = g.node("Concat", batch, g.ints(-1, _HEADS, width), axis=0)
        return str(g.node("Transpose", g.node("Reshape", product, shape), perm=[0, 2, 1, 3]))

    queries, keys, values = heads(x, _CHANNELS), heads(context, features), heads(context, features)
    scores = g.node("MatMul", queries, g.node("Transpose", keys, perm=[0, 1, 3, 2]))
    weights = g.node("Softmax", g.node("Mul", scores, g.constant(np.float32(width**-0.5))), axis=-1)
    result = g.node("Transpose", g.node("MatMul", weights, values), perm=[0, 2, 1, 3])
    return str(g.node("Reshape", result, g.node("Concat", batch, g.ints(-1, _CHANNELS), axis=0)))
