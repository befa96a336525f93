"""Schemas of models and their tasks."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Output
from tunefarm_api.schemas.problem import StoredError
from tunefarm_db.values import ModelState


class Tensor(Output):
    """An input, an output or a kernel's argument."""

    name: str = Field(description="Its name in the network.")
    shape: list[int] = Field(description="Its dimensions; empty for a scalar.")
    dtype: str = Field(description="Its element type, as numpy spells it.")


class Model(Output):
    """An uploaded network."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "mdl_01k8z3v6q4m9t2c7x5n8b1r0sd",
                    "name": "resnet18",
                    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "size_bytes": 46800000,
                    "shapes": {"x": [1, 3, 224, 224]},
                    "state": "ready",
                    "error": None,
                    "inputs": [{"name": "x", "shape": [1, 3, 224, 224], "dtype": "float32"}],
                    "outputs": [{"name": "y", "shape": [1, 1000], "dtype": "float32"}],
                    "operators": [["Conv", 20], ["Relu", 17]],
                    "opset": 17,
                    "num_params": 11689512,
                    "created_at": 1800000000.0,
                    "updated_at": 1800000004.2,
                }
            ]
        }
    )

    id: str = Field(description="Its identity.")
    name: str = Field(description="What the uploader called it.")
    sha256: str = Field(description="SHA-256 of the uploaded file.")
    size_bytes: int = Field(description="Size of the uploaded file.")
    shapes: dict[str, list[int]] = Field(description="Shapes that were given for inputs at upload.")
    state: ModelState = Field(description="Where its import stands. Only a ready model can be tuned.")
    error: StoredError | None = Field(description="Why its import failed, if it did.")
    inputs: list[Tensor] = Field(description="Its inputs; empty until it is ready.")
    outputs: list[Tensor] = Field(description="Its outputs; empty until it is ready.")
    operators: list[list[Any]] = Field(
        description="Pairs of operator and how often it occurs, most frequent first."
    )
    opset: int | None = Field(description="Its ONNX operator set; null until it is ready.")
    num_params: int | None = Field(description="How many numbers its weights are; null until it is ready.")
    created_at: float = Field(description="When it was uploaded, Unix seconds.")
    updated_at: float = Field(description="When it last changed, Unix seconds.")


class ModelTask(Output):
    """A kernel that the model runs: what there is to tune."""

    position: int = Field(description="Its place among the model's tasks of this pipeline and toolchain.")
    name: str = Field(description="Its name, from the graph.")
    workload_key: str = Field(description="Content hash of its computation; records are kept under it.")
    weight: int = Field(description="How often one inference runs it.")
    flops: float = Field(description="Floating-point operations of one call.")
    args: list[Tensor] = Field(description="Its arguments, outputs last.")
    pipeline: str = Field(
        description="The graph passes that found it: `cpu` or `gpu`; `cpu dot16`, `cpu dot8` for CPUs that multiply bytes."
    )
    toolchain: str = Field(description="The compiler version that it was found with.")


class Workload(Output):
    """A kernel's computation, independent of model and device."""

    key: str = Field(description="Content hash of the computation.")
    toolchain: str = Field(description="The compiler version that wrote it down.")
    name: str = Field(description="Its name in the model it was first seen in.")
    flops: float = Field(description="Floating-point operations of one call.")
    args: list[Tensor] = Field(description="Its arguments, outputs last.")
