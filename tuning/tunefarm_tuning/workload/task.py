"""Workloads and tuning tasks: the kernels of a model that can be tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tunefarm_tuning.target.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, shape and dtype of a tensor. Every dimension is a positive int; ``()`` is a scalar.

    Attributes:
        name: The tensor's name; may be empty, and is the model's text.
        shape: Its dimensions.
        dtype: Its dtype, as numpy names it.
        constant: Whether it is a weight, known when the network is compiled: a CPU's kernel may then read it in any layout, and a
            large one is timed outside of the caches.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        data = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}
        return {**data, "constant": True} if self.constant else data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
        """Read what `to_json` wrote."""
        return cls(
            name=data["name"],
            shape=tuple(data["shape"]),
            dtype=data["dtype"],
            constant=bool(data.get("constant", False)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kernel's computation, independent of any device.

    Attributes:
        key: Content hash of the computation. Equal computations of different models share it. It does not depend on names,
            processes or TVM's structural hash.
        name: A readable name from the graph (``"fused_conv2d_add_relu"``). Not part of the key.
        flops: Floating-point operations of one call.
        args: The kernel's arguments in calling order, outputs last.
        ir: The normalised module as TVM's JSON text (`tunefarm_tuning.tvm.base.serialization` reads it). Valid for
            the TVM version that wrote it alone.
    """

    key: str
    name: str
    flops: float
    args: tuple[TensorSpec, ...]
    ir: str = field(repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "key": self.key,
            "name": self.name,
            "flops": self.flops,
            "args": [a.to_json() for a in self.args],
            "ir": self.ir,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        """Read what `to_json` wrote."""
        return cls(
            key=data["key"],
            name=data["name"],
            flops=float(data["flops"]),
            args=tuple(TensorSpec.from_json(a) for a in data["args"]),
            ir=data["ir"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Marks a task as part of another algorithm for kernels of the model, which are tasks of their own.

    Attributes:
        algorithm: The algorithm's name, such as ``"winograd-4"``.
        instead_of: Workload keys of the kernels that it can replace.
        overhead: Estimated work of the algorithm's other kernels, as a multiple of this kernel's.
    """

    algorithm: str
    instead_of: tuple[str, ...]
    overhead: float

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "algorithm": self.algorithm,
            "instead_of": list(self.instead_of),
            "overhead": self.overhead,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Alternative:
        """Read what `to_json` wrote."""
        return cls(
            algorithm=data["algorithm"],
            instead_of=tuple(data["instead_of"]),
            overhead=float(data["overhead"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTask:
    """A workload of a model for a target.

    Attributes:
        workload: The kernel's computation.
        target: The target that it is tuned for.
        weight: How often one inference calls the kernel; for an alternative, how often it would.
        alternative: The kernels that it can replace; None for a kernel of the model itself.
    """

    workload: Workload
    target: Target
    weight: int
    alternative: Alternative | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "workload": self.workload.to_json(),
            "target": self.target.to_json(),
            "weight": self.weight,
            **({} if self.alternative is None else {"alternative": self.alternative.to_json()}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TuningTask:
        """Read what `to_json` wrote."""
        alternative = data.get("alternative")
        return cls(
            workload=Workload.from_json(data["workload"]),
            target=Target.from_json(data["target"]),
            weight=int(data["weight"]),
            alternative=None if alternative is None else Alternative.from_json(alternative),
        )
