"""Models: networks that have been accepted for tuning."""

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
        path: The file, ONNX or TFLite. Never written to; it may lie in a content-addressed store under any name.
        sha256: Of the file, in hexadecimal.
        shapes: Full shapes of the inputs that have dimensions which the file leaves open.
        inputs: All inputs with every dimension known, in the file's order, under the file's names (a stranger's text).
        outputs: Likewise.
        operators: ONNX's operators and how often each occurs, the most frequent first.
        num_params: Elements of the floating-point weights.
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
        """Return everything but the path, which is the store's business."""
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
