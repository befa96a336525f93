"""A small TFLite file under construction, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tflite_writer import TfliteWriter, scattered

SAME, VALID = 0, 1
RELU, RELU_N1_TO_1, RELU6 = 1, 2, 3
PADS = np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32)


@dataclass(frozen=True)
class Case:
    """A file, and numbers to put in: of integers, these are drawn from `low` to `high`."""

    data: bytes
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    low: int = -128
    high: int = 127

    def feeds(self) -> list[NDArray[Any]]:
        return [_feed(shape, dtype, 100 + i, self) for i, (shape, dtype) in enumerate(self.inputs)]


def _feed(shape: tuple[int, ...], dtype: str, seed: int, case: Case) -> NDArray[Any]:
    drawn = scattered(shape, seed)
    if dtype == "bool":
        return np.asarray(drawn > 0)
    if dtype.startswith("float"):
        return np.asarray(drawn * 3, dtype)
    span = np.floor((drawn.astype(np.float64) + 1) / 2 * (case.high - case.low + 1))
    return np.asarray(span + case.low, dtype)


class Net(TfliteWriter):
    """A file under construction that remembers its inputs."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.fed: list[tuple[tuple[int, ...], str]] = []

    def input(self, shape: Sequence[int], dtype: str = "float32", **more: Any) -> int:
        self.fed.append((tuple(shape), dtype))
        return super().input(shape, dtype, **more)

    def case(self, *outputs: int, **more: Any) -> Case:
        return Case(self.data(outputs), tuple(self.fed), **more)

    def conv(self, x: int, inp: Sequence[int], out: Sequence[int], k: int = 3, **fields: Any) -> int:
        return self.op(
            "CONV_2D",
            [x, self.weight(out[3], k, k, inp[3]), self.weight(out[3])],
            out,
            options="Conv2DOptions",
            fields={"Padding": SAME, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
            | fields,
        )


ZOO: dict[str, Callable[[], Case]] = {}
Build = Callable[[], Case]


def case(function: Build) -> Build:
    ZOO[function.__name__] = function
    return function
