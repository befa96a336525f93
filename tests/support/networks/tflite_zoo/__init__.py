"""Small TFLite files for every operator that is read, in each of its forms."""

from __future__ import annotations

from tflite_zoo import bidirectional, detection, elementwise, layers, program, quantised, recurrent, shaping
from tflite_zoo.cases import ZOO, Case, Net

__all__ = [
    "ZOO",
    "Case",
    "Net",
    "bidirectional",
    "detection",
    "elementwise",
    "layers",
    "program",
    "quantised",
    "recurrent",
    "shaping",
]
