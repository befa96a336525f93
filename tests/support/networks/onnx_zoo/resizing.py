"""Resize and Upsample."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx_models import GraphBuilder

from onnx_zoo.cases import case, image, scalar


@case(9, 9)
def upsample_9(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 4, 5)
    scales = g.constant(np.array([1, 1, 2, 3], np.float32))
    return [g.node("Upsample", x, scales), g.node("Upsample", x, scales, mode="linear")]


@case(7, 8)
def upsample_7(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 4, 5)
    return [
        g.node("Upsample", x, scales=[1.0, 1.0, 2.0, 3.0]),
        g.node("Upsample", x, scales=[1.0, 1.0, 2.0, 2.0], mode="linear"),
    ]


@case(10, 10)
def resize_10(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 4, 6)
    up, down = (g.constant(np.array([1, 1, *s], np.float32)) for s in ((2, 3), (0.5, 0.5)))
    return [g.node("Resize", x, s, mode=m) for s in (up, down) for m in ("nearest", "linear")]


@case(13)
def resize_to_fit(g: GraphBuilder, v: int) -> Any:
    """What torchvision's detectors do with images: the shorter side gets a given size."""
    x = image(g, 1, 2, 4, 6)
    size = g.node("Slice", g.node("Shape", x), g.ints(2), g.ints(4))
    sides = g.node("Cast", size, to=TensorProto.FLOAT)
    shorter = g.node("Reciprocal", g.node("ReduceMin", sides, keepdims=0))
    factor = g.node("Min", g.node("Mul", shorter, scalar(g, 8)), scalar(g, 100))
    wanted = g.node("Cast", g.node("Floor", g.node("Mul", sides, factor)), to=TensorProto.INT64)
    sizes = g.node("Concat", g.ints(1, 2), wanted, axis=0)
    return g.node("Resize", x, "", "", sizes, mode="linear")


@case(11)
def resize_scales(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 4, 6)
    roi = g.constant(np.zeros(0, np.float32)) if v < 13 else ""
    up, down = (g.constant(np.array([1, 1, *s], np.float32)) for s in ((2, 3), (0.5, 0.5)))
    return [
        g.node("Resize", x, roi, up, mode="nearest"),
        g.node("Resize", x, roi, up, mode="linear"),
        g.node("Resize", x, roi, down, mode="linear", coordinate_transformation_mode="align_corners"),
        g.node("Resize", x, roi, up, mode="linear", coordinate_transformation_mode="align_corners"),
        g.node("Resize", x, roi, up, mode="linear", coordinate_transformation_mode="asymmetric"),
        g.node("Resize", x, roi, up, mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
        g.node(
            "Resize",
            x,
            roi,
            up,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        g.node(
            "Resize",
            x,
            roi,
            down,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        g.node(
            "Resize",
            x,
            roi,
            up,
            mode="nearest",
            coordinate_transformation_mode="half_pixel",
            nearest_mode="ceil",
        ),
    ]


@case(11)
def resize_sizes(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 4, 6)
    empty = g.constant(np.zeros(0, np.float32)) if v < 13 else ""
    return [
        g.node("Resize", x, empty, empty, g.ints(1, 2, 7, 9), mode=m, **a)
        for m in ("nearest", "linear")
        for a in (
            {},
            {"coordinate_transformation_mode": "align_corners"},
            {"coordinate_transformation_mode": "asymmetric"},
        )
    ]


@case(11)
def resize_fractional_scales(g: GraphBuilder, v: int) -> Any:
    # 0.6 * 7 = 4.2 -> 4 columns, but the scale stays 0.6.
    x = image(g, 1, 2, 5, 7)
    empty = g.constant(np.zeros(0, np.float32)) if v < 13 else ""
    scales = g.constant(np.array([1, 1, 1.3, 0.6], np.float32))
    return [
        g.node("Resize", x, empty, scales, mode=m, coordinate_transformation_mode=c)
        for m in ("nearest", "linear")
        for c in ("half_pixel", "asymmetric", "align_corners")
    ]


@case(11)
def resize_cubic(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 5, 7)
    empty = g.constant(np.zeros(0, np.float32)) if v < 13 else ""
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    return [
        g.node("Resize", x, empty, scales, mode="cubic"),
        g.node(
            "Resize",
            x,
            empty,
            scales,
            mode="cubic",
            cubic_coeff_a=-0.5,
            coordinate_transformation_mode="align_corners",
        ),
        g.node("Resize", x, empty, scales, mode="cubic", exclude_outside=1),
    ]


@case(18)
def resize_axes(g: GraphBuilder, v: int) -> Any:
    x, sizes = image(g, 1, 2, 4, 6), g.ints(8, 9)
    scales = g.constant(np.array([2, 3], np.float32))
    kept: dict[str, Any] = {"mode": "nearest", "keep_aspect_ratio_policy": "not_larger"}
    return [
        g.node("Resize", x, "", "", sizes, axes=[2, 3], mode="linear"),
        g.node("Resize", x, "", "", g.ints(9, 8), axes=[3, 2], mode="linear"),
        g.node("Resize", x, "", scales, axes=[2, 3], mode="nearest"),
        g.node("Resize", x, "", "", sizes, axes=[2, 3], **kept),
    ]


@case(18)
def resize_antialias(g: GraphBuilder, v: int) -> Any:
    return g.node(
        "Resize",
        image(g, 1, 2, 8, 8),
        "",
        g.constant(np.array([1, 1, 0.5, 0.5], np.float32)),
        mode="linear",
        antialias=1,
    )


@case(19)
def resize_half_pixel_symmetric(g: GraphBuilder, v: int) -> Any:
    return g.node(
        "Resize",
        image(g, 1, 2, 5, 7),
        "",
        g.constant(np.array([1, 1, 1.3, 0.6], np.float32)),
        mode="linear",
        coordinate_transformation_mode="half_pixel_symmetric",
    )


@case(11)
def resize_1d(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 5)
    empty = g.constant(np.zeros(0, np.float32)) if v < 13 else ""
    return g.node("Resize", x, empty, g.constant(np.array([1, 1, 2], np.float32)), mode="linear")
