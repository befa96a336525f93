"""Small networks for each operator and way of writing it, for every opset from 7 on."""

from __future__ import annotations

from onnx_zoo import (
    contributed,
    elementwise,
    layers,
    networks,
    picking,
    quantised,
    recurrent,
    resizing,
    shaping,
    windows,
)
from onnx_zoo.cases import OPSETS, build, names, opsets, ways_of_writing

__all__ = [
    "OPSETS",
    "build",
    "contributed",
    "elementwise",
    "layers",
    "names",
    "networks",
    "opsets",
    "picking",
    "quantised",
    "recurrent",
    "resizing",
    "shaping",
    "ways_of_writing",
    "windows",
]
