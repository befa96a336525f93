"""Models and their tasks, as the client returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tunefarm.client.results.reading import Answer, Result
from tunefarm.client.results.shown import Shown
from tunefarm_text import quantities


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Result):
    """Error of a model or a job."""

    code: str = "internal"
    message: str = "no reason was given"
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _members(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**data, "message": data.get("message") or data.get("detail")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor(Result):
    """An input or output of a model. A dimension is None if it depends on values, as of what ONNX Runtime's parts return."""

    name: str
    shape: tuple[int | None, ...] = ()
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCode(Answer):
    """A kernel's computation.

    Attributes:
        ir: The module as JSON, which TVM of this `toolchain` reads.
    """

    key: str
    toolchain: str
    name: str
    flops: float = 0.0
    args: tuple[Tensor, ...] = ()
    ir: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSet(Result):
    """One of the sets of shapes that a model is tuned for.

    Attributes:
        weight: How often the user runs it, relative to the others.
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompiled(Result):
    """A node that cannot be compiled, and why."""

    operator: str
    node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePart(Result):
    """A part of a network that ONNX Runtime runs inside the artifact.

    Attributes:
        operators: Operator names and their counts.
        reasons: Its first nodes that cannot be compiled.
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    operators: tuple[tuple[str, int], ...] = ()
    reasons: tuple[NotCompiled, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Model(Shown, Answer):
    """An uploaded model.

    Attributes:
        state: ``importing``, ``ready``, ``failed`` or ``deleted``. The fields from `inputs` on are known when it is
            ready.
        version: Which of the uploads under this name it is, from 1.
        created_at: Time of the upload, Unix seconds.
        error: Error, if it failed; else None.
        waiting: Why its import has not begun; None in lists, and once it has begun.
        shapes: Shapes given for inputs with dynamic dimensions: sizes, or a text with several sizes.
        values: Values given for inputs that became constants.
        specialisations: The sets of shapes that it is tuned for, the most important first; none if there is only one.
        parts: The parts that cannot be compiled, which ONNX Runtime runs inside the artifact.
        operators: Operator names and their counts.
        opset: The ONNX operator set of the file.
        num_params: Number of parameters.
        tags: Words to find it by; `note` is a text for people.
    """

    id: str
    name: str = ""
    version: int = 1
    state: str
    sha256: str = ""
    size_bytes: int = 0
    owner: str | None = None
    created_at: float = 0.0
    error: Problem | None = None
    waiting: str | None = None
    shapes: Mapping[str, str | tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    operators: tuple[tuple[str, int], ...] = ()
    opset: int | None = None
    num_params: int | None = None
    specialisations: tuple[ShapeSet, ...] = ()
    parts: tuple[RuntimePart, ...] = ()
    tags: tuple[str, ...] = ()
    note: str = ""

    @property
    def named(self) -> str:
        """Its name with its version, ``ocr-rec@3``, which is accepted wherever its id is."""
        return f"{self.name}@{self.version}"

    @property
    def state_text(self) -> str:
        """Its state, and why its import has not begun: ``importing: waiting for a worker: 3 imports before it``."""
        return f"{self.state}: {self.waiting}" if self.waiting else self.state

    def summary(self) -> Mapping[str, str]:
        """Return the model's row in a notebook: column name to text."""
        return {
            "": self.id,
            "name": self.named,
            "state": self.state_text,
            "inputs": _tensors(self.inputs)
            + (f" and {len(self.specialisations) - 1} more shapes" if len(self.specialisations) > 1 else ""),
            "outputs": _tensors(self.outputs),
            "size": quantities.size(self.size_bytes),
            "error": self.error.message if self.error else "",
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SampleFile(Shown, Answer):
    """A file of samples: real inputs of a model. Its contents cannot be read back.

    Attributes:
        state: ``checking``, ``ready`` or ``failed``.
        error: Reason why it was refused; else None.
        sets: Number of sample sets; None until it is ready.
        used: Indices of the sample sets that a compile runs.
        created_at: Time of the upload, Unix seconds.
        expires_at: Time of deletion, Unix seconds; None once a job uses it.
    """

    id: str
    model_id: str = ""
    name: str = ""
    sha256: str = ""
    size_bytes: int = 0
    state: str
    error: Problem | None = None
    sets: int | None = None
    used: tuple[int, ...] = ()
    owner: str | None = None
    created_at: float = 0.0
    expires_at: float | None = None

    def summary(self) -> Mapping[str, str]:
        """Return the samples' row in a notebook: column name to text."""
        return {
            "": self.id,
            "name": self.name,
            "state": self.state,
            "sets": quantities.NONE if self.sets is None else str(self.sets),
            "size": quantities.size(self.size_bytes),
            "error": self.error.message if self.error else "",
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelTask(Shown, Answer):
    """A kernel of a model that can be tuned.

    Attributes:
        weight: Calls per inference.
        flops: Floating-point operations of one call.
        pipeline: Graph passes that extracted it.
        args: Arguments, the result last.
    """

    position: int = 0
    name: str = ""
    workload_key: str
    weight: int = 1
    flops: float = 0.0
    pipeline: str = ""
    args: tuple[Tensor, ...] = ()

    def summary(self) -> Mapping[str, str]:
        """Return the kernel's row in a notebook: column name to text."""
        return {
            "": self.name,
            "arguments": _tensors(self.args),
            "calls": str(self.weight),
            "operations": quantities.flops(self.flops),
        }


def _tensors(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(
        f"{tensor.name} {quantities.shape(tensor.shape, tensor.dtype)}".strip() for tensor in tensors
    )
