"""`Model`: a network that has been accepted for tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tunefarm_tuning.core.json_fields import fields_from_json, fields_to_json
from tunefarm_tuning.workload.binding import Binding, Value
from tunefarm_tuning.workload.task import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A network that `import_model` has accepted.

    Attributes:
        path: The file, which is never written to. It may have any name, as in a content-addressed store.
        sha256: SHA-256 of the file, in hexadecimal.
        binding: Shapes for the inputs whose shape the file leaves open, and values of inputs that became constants.
        inputs: All inputs but those bound to values, with every dimension known, in the file's order. Names are the file's:
            untrusted text.
        outputs: All outputs, as `inputs`.
        operators: Names of ONNX operators and how often each occurs, the most frequent first.
        opset: Version of ONNX's operator set.
        num_params: Number of elements of the floating-point weights.
    """

    path: Path
    sha256: str
    binding: Binding = field(default_factory=Binding)
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: tuple[tuple[str, int], ...]
    opset: int
    num_params: int

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
