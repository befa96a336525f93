"""Workloads and tuning tasks: what there is to tune in a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tunefarm_tuning.target.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, shape and dtype of a tensor. Every dimension is a positive int; ``()`` is a scalar.

    Attributes:
        constant: Whether it is a weight of the network, known when that is compiled: a CPU's kernel may then take it in
            whatever order it likes, and a large one is read from memory and no cache.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False

    def to_json(self) -> dict[str, Any]:
        data = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}
        return {**data, "constant": True} if self.constant else data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
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
        key: Content hash of the computation; equal computations of different models share it, and
            it does not change with names, processes or TVM's own structural hash.
        name: A human's name for it, from the graph (``"fused_conv2d_add_relu"``). Not part of the key.
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
        return {
            "key": self.key,
            "name": self.name,
            "flops": self.flops,
            "args": [a.to_json() for a in self.args],
            "ir": self.ir,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        return cls(
            key=data["key"],
            name=data["name"],
            flops=float(data["flops"]),
            args=tuple(TensorSpec.from_json(a) for a in data["args"]),
            ir=data["ir"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """That a task is part of another algorithm for kernels of the model, which are tasks of their own.

    Attributes:
        algorithm: ``"winograd-4"``, say.
        instead_of: Workload keys of the kernels that it can take the place of.
        overhead: The work of the algorithm's other kernels, relative to this one's (an estimate).
    """

    algorithm: str
    instead_of: tuple[str, ...]
    overhead: float

    def to_json(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "instead_of": list(self.instead_of),
            "overhead": self.overhead,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Alternative:
        return cls(
            algorithm=data["algorithm"],
            instead_of=tuple(data["instead_of"]),
            overhead=float(data["overhead"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTask:
    """A workload of a model for a target.

    Attributes:
        weight: How often one inference runs this kernel; of an alternative, how often it would.
        alternative: What it is an alternative to; None for a kernel of the model as it stands.
    """

    workload: Workload
    target: Target
    weight: int
    alternative: Alternative | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload.to_json(),
            "target": self.target.to_json(),
            "weight": self.weight,
            **({} if self.alternative is None else {"alternative": self.alternative.to_json()}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TuningTask:
        alternative = data.get("alternative")
        return cls(
            workload=Workload.from_json(data["workload"]),
            target=Target.from_json(data["target"]),
            weight=int(data["weight"]),
            alternative=None if alternative is None else Alternative.from_json(alternative),
        )
