"""The model that the children of an import describe, as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunefarm_tuning.workload.binding import Binding, Value
from tunefarm_tuning.workload.model import Model, Specialisation
from tunefarm_tuning.workload.runtime_part import OpenSpec, RuntimePart
from tunefarm_tuning.workload.task import TensorSpec


def described_model(
    path: Path,
    sha256: str,
    values: Mapping[str, Value],
    inspected: Mapping[str, Any],
    imported: Mapping[str, Any],
    described: Sequence[Mapping[str, Any]],
) -> Model:
    """Return what the children told of a network.

    Args:
        path: Its file.
        sha256: The file's.
        values: The inputs that became constants.
        inspected: The answer of `check_child.inspect`.
        imported: The answer of `import_network.import_network`.
        described: Its inputs and outputs in each set of shapes.
    """
    inputs = tuple(TensorSpec.from_json(spec) for spec in inspected["inputs"])
    combined, open_inputs = inspected["combinations"], inspected["open_inputs"]
    return Model(
        path=path,
        sha256=sha256,
        binding=_binding(values, inputs, open_inputs),
        inputs=inputs,
        outputs=tuple(OpenSpec.from_json(spec) for spec in imported["outputs"]),
        specialisations=tuple(
            _specialisation(item, combination["weight"], values, open_inputs)
            for item, combination in zip(described[: len(combined)], combined, strict=True)
        ),
        least_batch=inspected["least_batch"],
        operators=tuple((name, count) for name, count in inspected["operators"]),
        opset=inspected["opset"],
        num_params=inspected["num_params"],
        parts=tuple(RuntimePart.from_json(part) for part in imported["parts"]),
    )


def _binding(
    values: Mapping[str, Value], inputs: Sequence[TensorSpec], open_inputs: Sequence[str]
) -> Binding:
    return Binding(
        shapes={spec.name: spec.shape for spec in inputs if spec.name in open_inputs}, values=values
    )


def _specialisation(
    described: Mapping[str, Any], weight: int, values: Mapping[str, Value], open_inputs: Sequence[str]
) -> Specialisation:
    inputs = tuple(TensorSpec.from_json(spec) for spec in described["inputs"])
    return Specialisation(
        binding=_binding(values, inputs, open_inputs),
        inputs=inputs,
        outputs=tuple(OpenSpec.from_json(spec) for spec in described["outputs"]),
        weight=weight,
    )
