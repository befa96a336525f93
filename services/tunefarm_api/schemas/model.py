"""Schemas of models and their tasks."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import OWNER, Input, Note, Output, Tags
from tunefarm_api.schemas.problem import StoredError
from tunefarm_db.values import ModelState
from tunefarm_text.job_terms import LABELS


class Tensor(Output):
    """An input, an output or a kernel's argument."""

    name: str = Field(description="Name in the network.")
    shape: list[int | None] = Field(
        description="Dimensions; empty for a scalar. Null if it depends on values, as an output of a part for ONNX Runtime."
    )
    dtype: str = Field(description="Element type, as numpy spells it.")


class ShapeSet(Output):
    """A set of shapes that a model is tuned for."""

    inputs: list[Tensor] = Field(description="Inputs with these shapes.")
    outputs: list[Tensor] = Field(description="Outputs with these shapes.")
    weight: int = Field(description="How often the user runs it, relative to the other sets.")


class NotCompiled(Output):
    """A node that cannot be compiled."""

    operator: str = Field(description="Operator of the node.")
    node: str = Field(description="Name of the node in quotes, or its number.")
    reason: str = Field(description="Why it cannot be compiled.")


class RuntimePart(Output):
    """A part of a network that ONNX Runtime runs inside the artifact."""

    inputs: list[Tensor] = Field(description="Tensors that it takes of the rest of the network.")
    outputs: list[Tensor] = Field(description="Tensors that the rest of the network takes of it.")
    operators: list[list[Any]] = Field(description="Pairs of an operator and its count.")
    reasons: list[NotCompiled] = Field(description="Its first nodes that cannot be compiled.")


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
                    "values": {},
                    "state": "ready",
                    "error": None,
                    "inputs": [{"name": "x", "shape": [1, 3, 224, 224], "dtype": "float32"}],
                    "outputs": [{"name": "y", "shape": [1, 1000], "dtype": "float32"}],
                    "specialisations": [],
                    "parts": [],
                    "operators": [["Conv", 20], ["Relu", 17]],
                    "opset": 17,
                    "num_params": 11689512,
                    "created_at": 1800000000.0,
                    "updated_at": 1800000004.2,
                }
            ]
        }
    )

    id: str = Field(description="Identifier.")
    name: str = Field(description="Name given at the upload.")
    version: int = Field(
        1,
        description="Which of the uploads under this name it is, from 1: `name@version` is accepted wherever its id is.",
    )
    sha256: str = Field(description="SHA-256 of the uploaded file.")
    size_bytes: int = Field(description="Size of the uploaded file.")
    shapes: dict[str, list[int] | str] = Field(
        description="Shapes of inputs, given at the upload: a list of sizes, or a text with several sizes."
    )
    values: dict[str, Any] = Field(description="Values of inputs that became constants, given at the upload.")
    state: ModelState = Field(description="State of the import. Only a ready model can be tuned.")
    error: StoredError | None = Field(description="Error of the import, if it failed.")
    waiting: str | None = Field(
        None,
        description="Why the import has not begun: a worker is missing, or how many imports come before it. Null if it has "
        "begun, and in lists.",
    )
    inputs: list[Tensor] = Field(description="Inputs; empty until the model is ready.")
    outputs: list[Tensor] = Field(description="Outputs; empty until the model is ready.")
    specialisations: list[ShapeSet] = Field(
        description="Sets of shapes that the model is tuned for, the most important first; empty if there is only one."
    )
    parts: list[RuntimePart] | None = Field(
        description="Parts that cannot be compiled, which ONNX Runtime runs inside the artifact; empty if there are none, null if "
        "an older release imported it."
    )
    operators: list[list[Any]] = Field(description="Pairs of an operator and its count, most frequent first.")
    opset: int | None = Field(description="ONNX operator set; null until the model is ready.")
    num_params: int | None = Field(description="Number of parameters; null until the model is ready.")
    tags: list[str] = Field(default_factory=list, description="Tags, in order.")
    note: str = Field("", description="A person's note.")
    owner: str | None = Field(description=OWNER)
    created_at: float = Field(description="Time of the upload, Unix seconds.")
    updated_at: float = Field(description="Time of the last change, Unix seconds.")


class ModelTask(Output):
    """A tunable kernel of the model."""

    position: int = Field(description="Index among the model's tasks of this pipeline and toolchain.")
    name: str = Field(description="Name of the kernel, from the graph.")
    workload_key: str = Field(description="Content hash of the computation, as in records.")
    weight: int = Field(description="Calls per inference.")
    flops: float = Field(description="Floating-point operations of one call.")
    args: list[Tensor] = Field(description="Arguments, outputs last.")
    pipeline: str = Field(
        description="Graph passes that extracted it: `cpu` or `gpu`; `cpu dot16` or `cpu dot8` for CPUs with int8 dot "
        "products."
    )
    toolchain: str = Field(description="Compiler version that extracted it.")


class Workload(Output):
    """A kernel's computation, independent of model and device."""

    key: str = Field(description="Content hash of the computation.")
    toolchain: str = Field(description="Compiler version that extracted the workload.")
    name: str = Field(description="Name in the first model that has it.")
    flops: float = Field(description="Floating-point operations of one call.")
    args: list[Tensor] = Field(description="Arguments, outputs last.")


class WorkloadCode(Workload):
    """A workload with its code."""

    ir: str = Field(
        description="The normalised module, as JSON that TVM of this `toolchain` reads: see `tvm.ir.load_json`."
    )


class ModelBinding(Input):
    """Shapes and values of a model's inputs."""

    shapes: list[str] = Field(
        default=[],
        max_length=64,
        description="Shapes of inputs with dynamic dimensions, one per input, as at the upload.",
        examples=[["x=1,3,224,224"]],
    )
    values: list[str] = Field(
        default=[],
        max_length=64,
        description="Values of inputs that are settings, and become constants, one per input, as at the upload.",
        examples=[["sr=16000"]],
    )


class ModelChange(Input):
    """Changes of a model."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tags": ["ocr", "customer-7"]}]})

    tags: Tags | None = Field(None, description="All tags of the model from now on. " + LABELS["tags"])
    note: Note | None = Field(None, description="The note from now on; empty for none.")
