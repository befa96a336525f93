"""Workloads and tuning tasks: the kernels of a model that can be tuned."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunefarm_tuning.core.json_fields import OMIT_DEFAULT, JsonFields
from tunefarm_tuning.target.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec(JsonFields):
    """Name, shape and dtype of a tensor. Every dimension is a positive int; ``()`` is a scalar.

    Attributes:
        name: The tensor's name; may be empty, and is the model's text.
        shape: Its dimensions.
        dtype: Its dtype, as numpy names it.
        constant: Whether it is a weight, known when the network is compiled: a CPU's kernel may then read it in any
            layout, and a large one is timed outside of the caches.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = field(default=False, metadata=OMIT_DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(JsonFields):
    """A kernel's computation, independent of any device.

    Attributes:
        key: Content hash of the computation. Equal computations of different models share it. It does not depend on
            names, processes or TVM's structural hash.
        name: A readable name from the graph (``"fused_conv2d_add_relu"``). Not part of the key.
        flops: Floating-point operations of one call.
        args: The kernel's arguments in calling order, outputs last.
        ir: The normalised module as TVM's JSON text (`tunefarm_tuning.tvm.base.serialization` reads it). Valid only for
            the TVM version that wrote it.
    """

    key: str
    name: str
    flops: float
    args: tuple[TensorSpec, ...]
    ir: str = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative(JsonFields):
    """Marks a task as part of another algorithm for kernels of the model, which are tasks of their own.

    Attributes:
        algorithm: The algorithm's name, such as ``"winograd-4"``.
        instead_of: Workload keys of the kernels that it can replace.
        overhead: Estimated work of the algorithm's other kernels, as a multiple of this kernel's.
    """

    algorithm: str
    instead_of: tuple[str, ...]
    overhead: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTask(JsonFields):
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
    alternative: Alternative | None = field(default=None, metadata=OMIT_DEFAULT)
