"""`Model`: a network that has been accepted for tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tunefarm_tuning.core.json_fields import OMIT_DEFAULT, JsonFields, fields_from_json, fields_to_json
from tunefarm_tuning.workload.binding import Binding, Value
from tunefarm_tuning.workload.quantisation import Quantisation
from tunefarm_tuning.workload.runtime_part import OpenSpec, RuntimePart
from tunefarm_tuning.workload.task import TensorSpec


def entry_name(number: int) -> str:
    """Return the name of the library's function for a set of shapes, by its number in `Model.each`: ``main``, ``main_1``, ..."""
    return f"main_{number}" if number else "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialisation(JsonFields):
    """One of the sets of shapes that a network is compiled for.

    Attributes:
        binding: The shapes, and the values of inputs that became constants.
        inputs: As `Model.inputs`.
        outputs: As `Model.outputs`.
        weight: How often the user runs it, relative to the others.
    """

    binding: Binding
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[OpenSpec, ...]
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Model:
    """A network that `import_model` has accepted.

    Attributes:
        path: The file, which is never written to. It may have any name, as in a content-addressed store.
        sha256: SHA-256 of the file, in hexadecimal.
        binding: Shapes for the inputs whose shape the file leaves open, and values of inputs that became constants.
        inputs: All inputs but those bound to values, with every dimension known, in the file's order. Names are the file's:
            untrusted text.
        outputs: All outputs, as `inputs`; what a part for ONNX Runtime returns may have open dimensions.
        operators: Names of ONNX operators and how often each occurs, the most frequent first.
        opset: Version of ONNX's operator set.
        num_params: Number of elements of the floating-point weights.
        specialisations: All sets of shapes that it is compiled for, if there are several or batches of other sizes are run.
            `binding`, `inputs` and `outputs` are those of the first, which matters most.
        least_batch: The smallest batch that the user runs.
        parts: The parts that cannot be compiled, which ONNX Runtime runs inside the artifact; none for most networks, and for
            those of several sets of shapes.
        quantisation: How it was quantised, if `quantise_model` made it.
    """

    path: Path
    sha256: str
    binding: Binding = field(default_factory=Binding)
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[OpenSpec, ...]
    operators: tuple[tuple[str, int], ...]
    opset: int
    num_params: int
    specialisations: tuple[Specialisation, ...] = field(default=(), metadata=OMIT_DEFAULT)
    least_batch: int = field(default=1, metadata=OMIT_DEFAULT)
    parts: tuple[RuntimePart, ...] = field(default=(), metadata=OMIT_DEFAULT)
    quantisation: Quantisation | None = field(default=None, metadata=OMIT_DEFAULT)

    def __init__(
        self,
        *,
        path: Path,
        sha256: str,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[OpenSpec, ...],
        operators: tuple[tuple[str, int], ...],
        opset: int,
        num_params: int,
        binding: Binding | None = None,
        specialisations: tuple[Specialisation, ...] = (),
        least_batch: int = 1,
        parts: tuple[RuntimePart, ...] = (),
        quantisation: Quantisation | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Set the fields; `shapes` instead of a binding is what releases before bindings took."""
        members = {
            "path": path,
            "sha256": sha256,
            "binding": binding or Binding.of(shapes),
            "inputs": inputs,
            "outputs": outputs,
            "operators": operators,
            "opset": opset,
            "num_params": num_params,
            "specialisations": specialisations,
            "least_batch": least_batch,
            "parts": parts,
            "quantisation": quantisation,
        }
        for name, value in members.items():
            object.__setattr__(self, name, value)

    @property
    def each(self) -> tuple[Model, ...]:
        """The network in each set of shapes, as a model of one shape; the first matters most."""
        if not self.specialisations:
            return (self,)
        return tuple(
            replace(self, binding=item.binding, inputs=item.inputs, outputs=item.outputs, specialisations=())
            for item in self.specialisations
        )

    @property
    def weights(self) -> tuple[int, ...]:
        """`Specialisation.weight` of each set of shapes."""
        return tuple(item.weight for item in self.specialisations) or (1,)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """`Binding.shapes`."""
        return self.binding.shapes

    @property
    def values(self) -> Mapping[str, Value]:
        """`Binding.values`."""
        return self.binding.values

    def to_json(self) -> dict[str, Any]:
        """Return all but the path, which depends on where the file is stored; shapes and values as members of their own."""
        data = fields_to_json(self)
        del data["path"], data["binding"]
        return {"sha256": data.pop("sha256"), **self.binding.to_json(), **data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], path: Path | str) -> Self:
        """Read what `to_json` wrote, also in a release that knew no values; `path` is where the file is now."""
        return fields_from_json(cls, {**data, "binding": data, "path": path})
