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
    """Why a model or a job failed."""

    code: str = "internal"
    message: str = "no reason was given"
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _members(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**data, "message": data.get("message") or data.get("detail")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor(Result):
    """An input or output of a model."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Model(Shown, Answer):
    """An uploaded model.

    Attributes:
        state: ``importing``, ``ready``, ``failed`` or ``deleted``. The fields from `inputs` on are known once it is ready.
        created_at: When it was uploaded, Unix seconds.
        error: Why it failed; None where it did not.
        shapes: The shapes that were given for inputs with dynamic dimensions.
        operators: Operator names, and how often each occurs.
        opset: The ONNX operator set of the file.
        num_params: How many parameters the model has.
    """

    id: str
    name: str = ""
    state: str
    sha256: str = ""
    size_bytes: int = 0
    created_at: float = 0.0
    error: Problem | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    operators: tuple[tuple[str, int], ...] = ()
    opset: int | None = None
    num_params: int | None = None

    def summary(self) -> Mapping[str, str]:
        return {
            "": self.id,
            "name": self.name,
            "state": self.state,
            "inputs": _tensors(self.inputs),
            "outputs": _tensors(self.outputs),
            "size": quantities.size(self.size_bytes),
            "error": self.error.message if self.error else "",
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelTask(Shown, Answer):
    """A kernel of a model that can be tuned.

    Attributes:
        weight: How often one inference runs it.
        flops: Floating-point operations of one call.
        pipeline: How its search space is generated.
        args: Its arguments; the result comes last.
    """

    position: int = 0
    name: str = ""
    workload_key: str
    weight: int = 1
    flops: float = 0.0
    pipeline: str = ""
    args: tuple[Tensor, ...] = ()

    def summary(self) -> Mapping[str, str]:
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
