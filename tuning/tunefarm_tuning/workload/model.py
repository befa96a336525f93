"""`Model`: a network that has been accepted for tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.workload.task import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A network that `import_model` has accepted.

    Attributes:
        path: The file, which is never written to. It may have any name, as in a content-addressed store.
        sha256: SHA-256 of the file, in hexadecimal.
        shapes: Shapes given by the caller, for the inputs whose shape the file leaves open.
        inputs: All inputs with every dimension known, in the file's order. Names are the file's: untrusted text.
        outputs: All outputs, as `inputs`.
        operators: Names of ONNX operators and how often each occurs, the most frequent first.
        opset: Version of ONNX's operator set.
        num_params: Number of elements of the floating-point weights.
    """

    path: Path
    sha256: str
    shapes: Mapping[str, tuple[int, ...]]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: tuple[tuple[str, int], ...]
    opset: int
    num_params: int

    def to_json(self) -> dict[str, Any]:
        """Return all but the path, which depends on where the file is stored."""
        return {
            "sha256": self.sha256,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "operators": [list(operator) for operator in self.operators],
            "opset": self.opset,
            "num_params": self.num_params,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], path: Path | str) -> Model:
        """Read what `to_json` wrote; `path` is where the file is now."""
        return cls(
            path=Path(path),
            sha256=data["sha256"],
            shapes={name: tuple(shape) for name, shape in data["shapes"].items()},
            inputs=tuple(TensorSpec.from_json(spec) for spec in data["inputs"]),
            outputs=tuple(TensorSpec.from_json(spec) for spec in data["outputs"]),
            operators=tuple((str(name), int(count)) for name, count in data["operators"]),
            opset=int(data["opset"]),
            num_params=int(data["num_params"]),
        )
