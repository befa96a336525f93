"""`Graph`: the builder that the benchmark's networks share. It extends that of the examples."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

import numpy as np
from benchmarks.search.machine import ROOT
from numpy.typing import NDArray
from onnx import helper, numpy_helper

if str(ROOT / "examples") not in sys.path:
    sys.path.insert(0, str(ROOT / "examples"))

from mobilenet_v2 import build_mobilenet_v2, inverted_residual
from network_graph import Graph as ExampleGraph
from network_graph import write_network
from resnet18 import build_resnet18

__all__ = [
    "Graph",
    "build_mobilenet_v2",
    "build_resnet18",
    "inverted_residual",
    "mean_square",
    "write_network",
]


def mean_square(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]], second_moment: float
) -> float:
    """Return E[function(x)²] of a normal x around 0."""
    points, shares = np.polynomial.hermite_e.hermegauss(40)
    return float(np.average(function(np.sqrt(second_moment) * points) ** 2, weights=shares))


class Graph(ExampleGraph):
    """A graph with biased convolutions of any size, operators that only move values, and layers of transformers."""

    def constant(self, name: str, values: object) -> str:
        """Add floats that are no parameters; once per name."""
        known = any(weight.name == name for weight in self.weights)
        return name if known else self.weight(name, np.array(values))

    def ints(self, name: str, values: Sequence[int]) -> str:
        """Add sizes or indices as int64; once per name."""
        if not any(weight.name == name for weight in self.weights):
            self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def like(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Node whose result is about as large as its first input: it moves values or takes means of them."""
        self.second_moment[name] = self.second_moment[inputs[0]]
        return self.node(kind, inputs, name, **attributes)

    def concat(self, parts: Sequence[tuple[str, int]], name: str) -> str:
        """Join tensors along their channels, which are given with each."""
        total = sum(channels * self.second_moment[x] for x, channels in parts)
        self.second_moment[name] = total / sum(channels for _, channels in parts)
        return self.node("Concat", [x for x, _ in parts], name, axis=1)

    def split(self, x: str, parts: int, axis: int, name: str) -> list[str]:
        """Cut a tensor into equal parts."""
        names = [f"{name}.{number}" for number in range(parts)]
        self.second_moment |= dict.fromkeys(names, self.second_moment[x])
        self.nodes.append(helper.make_node("Split", [x], names, name=name, axis=axis))
        return names

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        name: str,
        *,
        kernel: int = 1,
        stride: int = 1,
        pad: int = 0,
        groups: int = 1,
        bias: bool = True,
        gain: float = 1.0,
    ) -> str:
        """Convolution whose outputs' second moment is `gain` times its inputs': 2 makes up for a ReLU."""
        inner, outer = channels
        fan_in = inner // groups * kernel * kernel
        w = self.rng.normal(0.0, np.sqrt(gain / fan_in), (outer, inner // groups, kernel, kernel))
        inputs = [x, self.weight(f"{name}.weight", w)]
        self.second_moment[name] = gain * self.second_moment[x]
        if bias:
            inputs.append(self.weight(f"{name}.bias", self.rng.normal(0.0, 0.1, outer)))
            self.second_moment[name] += 0.01
        special: dict[str, object] = {}
        if stride > 1:
            special["strides"] = [stride, stride]
        if pad:
            special["pads"] = [pad, pad, pad, pad]
        if groups > 1:
            special["group"] = groups
        return self.node("Conv", inputs, name, kernel_shape=[kernel, kernel], **special)

    def swish(self, x: str, name: str) -> str:
        """X · sigmoid(x), in the two nodes that exporters write."""
        self.second_moment[name] = mean_square(lambda v: v / (1.0 + np.exp(-v)), self.second_moment[x])
        return self.node("Mul", [x, self.node("Sigmoid", [x], f"{name}.sigmoid")], name)

    def gemm(self, x: str, sizes: tuple[int, int], name: str) -> str:
        """Dense layer of a matrix (rows, inner) as a Gemm, which makes up for a ReLU."""
        inner, outer = sizes
        w = self.rng.standard_normal((outer, inner), np.float32) * np.float32(np.sqrt(2.0 / inner))
        bias = self.rng.normal(0.0, 0.1, outer)
        self.second_moment[name] = 2.0 * self.second_moment[x] + 0.01
        weights = [self.weight(f"{name}.weight", w), self.weight(f"{name}.bias", bias)]
        return self.node("Gemm", [x, *weights], name, transB=1)

    def dense(self, x: str, sizes: tuple[int, int], name: str, *, bias: bool = True) -> str:
        """Dense layer over the last axis as a MatMul and an Add."""
        w = self.weight(f"{name}.weight", self.rng.normal(0.0, np.sqrt(1.0 / sizes[0]), sizes))
        self.second_moment[name] = self.second_moment[x]
        if not bias:
            return self.node("MatMul", [x, w], name)
        shift = self.weight(f"{name}.bias", self.rng.normal(0.0, 0.1, sizes[1]))
        self.second_moment[name] += 0.01
        return self.node("Add", [shift, self.node("MatMul", [x, w], f"{name}.matmul")], name)

    def gelu(self, x: str, name: str) -> str:
        """X · Φ(x) by Erf, in the five nodes that exporters write."""
        erf = np.vectorize(math.erf)
        self.second_moment[name] = mean_square(
            lambda v: v * (1.0 + erf(v / math.sqrt(2.0))) / 2.0, self.second_moment[x]
        )
        sqrt2 = self.constant("sqrt2", math.sqrt(2.0))
        y = self.node("Erf", [self.node("Div", [x, sqrt2], f"{name}.div")], f"{name}.erf")
        y = self.node("Add", [y, self.constant("one", 1.0)], f"{name}.add")
        y = self.node("Mul", [x, y], f"{name}.mul")
        return self.node("Mul", [y, self.constant("half", 0.5)], name)

    def layer_norm(self, x: str, width: int, name: str) -> str:
        """Over the last axis, which is so wide."""
        scale, shift = self.rng.uniform(0.8, 1.2, width), self.rng.normal(0.0, 0.1, width)
        self.second_moment[name] = float(np.mean(scale**2) + np.mean(shift**2))
        weights = [self.weight(f"{name}.scale", scale), self.weight(f"{name}.shift", shift)]
        return self.node("LayerNormalization", [x, *weights], name, axis=-1, epsilon=1e-5)
