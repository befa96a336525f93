"""Graph pipelines: which one makes a model's tasks for a target, and which share theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import ModelTask
from tunefarm_tuning.target.dot_products import byte_products, is_arm64
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload import revisions
from tunefarm_tuning.workload.precision import Precision

_INTEGER_OPERATORS = ("quant", "qlinear", "integer", "qgemm", "qattention", "nbits", "nhwc")
"""Parts of the names, in small letters, of all operators that a product of integers comes from."""

CPU = "cpu"
GPU = "gpu"


def pipeline_of(target: Target, precision: Precision = Precision.AS_MODEL) -> str:
    """Return the name of the graph pipeline for the target and the precision of weights.

    CPUs with an instruction for products of int8 have their own kernels, laid out for it.
    """
    instruction = byte_products(target)
    pipeline = GPU if target.kind == "cuda" else f"{CPU} {instruction.key}" if instruction else CPU
    if precision is Precision.BFLOAT16 and is_arm64(target):  # laid out for another instruction than x86's
        pipeline = f"{pipeline} arm"
    return pipeline if precision is Precision.AS_MODEL else f"{pipeline} {precision.value}"


def shares_tasks_of_any_cpu(target: Target, pipeline: str, operators: Iterable[Sequence[Any]]) -> bool:
    """Return whether a network's tasks in a pipeline are those of any CPU, which its import extracted.

    A pipeline for an instruction of int8 differs in nothing but products of integers.
    """
    instruction = byte_products(target)
    return (
        instruction is not None
        and pipeline == f"{CPU} {instruction.key}"
        and not any(word in name.lower() for name, *_ in operators for word in _INTEGER_OPERATORS)
    )


def share_tasks(repos: Repositories, model_id: str, pipeline: str, tasks: Sequence[ModelTask]) -> None:
    """Store the tasks of one pipeline under another."""
    for toolchain in {task.toolchain for task in tasks}:
        repos.models.set_tasks(
            model_id,
            pipeline=pipeline,
            toolchain=toolchain,
            tasks=[(task.workload_key, task.weight) for task in tasks],
            alternatives={
                task.workload_key: task.alternative for task in tasks if task.alternative is not None
            },
            revision=revisions.GRAPH_PASSES,
        )
