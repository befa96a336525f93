"""Resizing images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.tflite.converter import Converter, OperatorContext

LARGEST_SIDE = 1 << 16
"""Maximum number of rows of an image that are selected by a list of indices."""


def _resize(op: OperatorContext) -> None:
    shape, out = op.need_rank(0, 4), op.out_shape()
    if len(out) != 4 or (out[0], out[3]) != (shape[0], shape[3]) or 0 in out:
        raise op.bad_file(f"an image of {list(shape)} does not become one of {list(out)}")
    corners, centers = (bool(op.option(name, False)) for name in ("AlignCorners", "HalfPixelCenters"))
    if max(out[1:3]) > LARGEST_SIDE:
        raise op.bad_file(f"{list(out)} is larger than any image")
    if corners and centers:
        raise op.unsupported_form("both aligned corners and half-pixel centres")
    coordinates = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    raw = op.can_stay_raw([op.index(0)], [op.output()]) and op.operator.kind != "RESIZE_BILINEAR"
    x = op.values.get(op.index(0), first=True, raw=raw)
    sizes = op.writer.ints([out[0], out[3], out[1], out[2]])
    if op.operator.kind == "RESIZE_BILINEAR":
        result = op.node(
            "Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode=coordinates
        )
    elif all(out[i] % shape[i] == 0 or shape[i] % out[i] == 0 for i in (1, 2)) and not corners:
        # TFLite rounds (x + 0.5) * scale down: the nearest of (x + 0.5) * scale - 0.5, the later one of two.
        nearest = "round_prefer_ceil" if centers else "floor"
        result = op.node(
            "Resize",
            x,
            "",
            "",
            sizes,
            mode="nearest",
            coordinate_transformation_mode=coordinates,
            nearest_mode=nearest,
        )
    else:
        # Which of two neighbours is nearest can depend on how TFLite rounds its scale.
        result = x
        for axis in (1, 2):
            rows = _nearest(shape[axis], out[axis], corners=corners, centers=centers)
            result = op.node("Gather", result, op.writer.weight(rows), axis=axis + 1)
    op.finish(result, first=True, raw=raw)


def _nearest(size: int, out: int, *, corners: bool, centers: bool) -> NDArray[np.int64]:
    """Return the row that TFLite takes for each row of the result, computed in 32-bit floats as there."""
    if corners and out > 1:
        scale = np.float32(size - 1) / np.float32(out - 1)
    else:
        scale = np.float32(size) / np.float32(out)
    offset = np.float32(0.5 if centers else 0.0)
    at = (np.arange(out, dtype=np.float32) + offset) * scale
    rows = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
    chosen: NDArray[np.int64] = np.clip(rows, 0, size - 1).astype(np.int64)
    return chosen


CONVERTERS: Mapping[str, Converter] = {"RESIZE_BILINEAR": _resize, "RESIZE_NEAREST_NEIGHBOR": _resize}
