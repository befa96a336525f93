"""PyTorch twins of the benchmark's networks: the same arithmetic and weights, written as is usual in PyTorch.

Imports PyTorch and numpy, and nothing of tunefarm: it runs in whatever Python has PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

Weights = Mapping[str, NDArray[Any]]

_STAGES = ((3, 1), (4, 2), (6, 2), (3, 2))  # blocks, stride of the first
_NORM_EPSILON = 1e-5


class Conv(nn.Module):
    """A convolution without bias and its batch norm."""

    def __init__(self, weights: Weights, name: str, stride: int) -> None:
        super().__init__()
        kernel = weights[f"{name}.weight"]
        outer, inner, size, _ = kernel.shape
        self.conv = nn.Conv2d(inner, outer, size, stride, size // 2, bias=False)
        self.norm = nn.BatchNorm2d(outer, eps=_NORM_EPSILON)
        _set(self.conv.weight, kernel)
        _set(self.norm.weight, weights[f"{name}.scale"])
        _set(self.norm.bias, weights[f"{name}.shift"])
        _set(self.norm.running_mean, weights[f"{name}.mean"])
        _set(self.norm.running_var, weights[f"{name}.var"])

    def forward(self, x: Any) -> Any:
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    """Narrow, 3x3, widen, and a shortcut."""

    def __init__(self, weights: Weights, name: str, stride: int) -> None:
        super().__init__()
        self.narrow = Conv(weights, f"{name}.0", 1)
        self.middle = Conv(weights, f"{name}.1", stride)
        self.wide = Conv(weights, f"{name}.2", 1)
        down = f"{name}.down"
        self.shortcut = Conv(weights, down, stride) if f"{down}.weight" in weights else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = functional.relu(self.narrow(x))
        y = functional.relu(self.middle(y))
        return functional.relu(self.wide(y) + self.shortcut(x))


class ResNet50(nn.Module):
    """The twin of `build_resnet50`."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.stem = Conv(weights, "stem", 2)
        self.blocks = nn.Sequential(
            *(
                Bottleneck(weights, f"layer{stage}.{number}", stride if number == 0 else 1)
                for stage, (blocks, stride) in enumerate(_STAGES, start=1)
                for number in range(blocks)
            )
        )
        classes, channels = weights["fc.weight"].shape
        self.classifier = nn.Linear(channels, classes)
        _set(self.classifier.weight, weights["fc.weight"])
        _set(self.classifier.bias, weights["fc.bias"])

    def forward(self, x: Any) -> Any:
        y = functional.max_pool2d(functional.relu(self.stem(x)), 3, 2, 1)
        y = self.blocks(y)
        return self.classifier(torch.flatten(functional.adaptive_avg_pool2d(y, 1), 1))


class EncoderLayer(nn.Module):
    """Attention and two dense layers, each with a residual connection and a norm."""

    def __init__(self, weights: Weights, name: str, heads: int) -> None:
        super().__init__()
        self.heads = heads
        parts = ("attention.query", "attention.key", "attention.value", "attention.out", "wide", "narrow")
        self.query, self.key, self.value, self.out, self.wide, self.narrow = (
            _linear(weights, f"{name}.{part}") for part in parts
        )
        self.norm1, self.norm2 = (_layer_norm(weights, f"{name}.norm{number}") for number in (1, 2))

    def forward(self, x: Any) -> Any:
        batch, sequence, hidden = x.shape
        shape = (batch, sequence, self.heads, hidden // self.heads)
        query, key, value = (
            project(x).view(shape).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        y = self.norm1(self.out(mixed.transpose(1, 2).reshape(batch, sequence, hidden)) + x)
        return self.norm2(self.narrow(functional.gelu(self.wide(y))) + y)


class Encoder(nn.Module):
    """The twin of `build_encoder`, with attention as PyTorch has it."""

    def __init__(self, weights: Weights, heads: int = 12) -> None:
        super().__init__()
        layers = 1 + max(int(name[5 : name.index(".")]) for name in weights if name.startswith("layer"))
        self.layers = nn.Sequential(
            *(EncoderLayer(weights, f"layer{number}", heads) for number in range(layers))
        )

    def forward(self, x: Any) -> Any:
        return self.layers(x)


TWINS: dict[str, Callable[[Weights], nn.Module]] = {"resnet50": ResNet50, "bert": Encoder}
"""By the network's name."""


def twin(name: str, weights: Weights, dtype: str, device: str) -> nn.Module:
    """Return a network's twin, ready to run.

    Args:
        name: The network's.
        weights: From `weights_file`.
        dtype: ``"float32"`` or ``"float16"``.
        device: PyTorch's name of it.
    """
    module = TWINS[name](weights).eval().to(device=device, dtype=getattr(torch, dtype))
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return module


def _linear(weights: Weights, name: str) -> nn.Linear:
    matrix = weights[f"{name}.weight"]  # as ONNX's MatMul takes it
    linear = nn.Linear(*matrix.shape)
    _set(linear.weight, matrix.T)
    _set(linear.bias, weights[f"{name}.bias"])
    return linear


def _layer_norm(weights: Weights, name: str) -> nn.LayerNorm:
    scale = weights[f"{name}.scale"]
    norm = nn.LayerNorm(scale.shape, eps=_NORM_EPSILON)
    _set(norm.weight, scale)
    _set(norm.bias, weights[f"{name}.shift"])
    return norm


def _set(parameter: Any, values: NDArray[Any]) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values, np.float32)))
