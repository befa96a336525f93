"""Extract a model's tuning tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.child import call_in_child
from tunefarm_tuning.process.limits import WORKLOADS_BYTES, ChildLimits
from tunefarm_tuning.process.model_child import CHILD_ENVIRONMENT, ImportLimits, call_model_child
from tunefarm_tuning.process.sandbox import Access
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.quantisation import network_precision
from tunefarm_tuning.workload.task import TuningTask

_CHILD = "tunefarm_tuning.tvm.children.import_network"
_TIMEOUT_SEC = 600.0
_MORE_SEC = 60.0
"""Time limit for the first set of shapes, and what each further one adds."""


def extract_tasks(
    model: Model,
    target: Target | str = "host",
    *,
    alternatives: bool = True,
    precision: str = Precision.AS_MODEL,
    limits: ChildLimits | None = None,
    cancellation: Cancellation | None = None,
) -> tuple[TuningTask, ...]:
    """Return a model's tuning tasks for a target, in order of first use.

    Equal kernels are one task, weighted by their calls per inference. Of a model of several shapes, the calls of each shape count
    as often as the user runs it. Kernels that cannot be tuned (a reshape that
    becomes a view, a call into a library, shapes known only at run time) are not tasks.

    Args:
        model: From `import_model`.
        target: A target, or a name that `parse_target` reads.
        alternatives: Whether to add, last, the tasks of other algorithms that seem worth a trial
            (`TuningTask.alternative`): Winograd's for 3x3 convolutions. `compile` uses what makes the network faster.
        precision: Format of stored weights, or of products, one of `Precision`. It changes the tasks; `compile` needs the same
            precision.
        limits: Limits of the child process.
        cancellation: Ends the extraction from another thread.

    Raises:
        UnknownTargetError: If the target's name is unknown.
        InvalidInputError: If the precision is unknown, or unsupported for the target (unknown-precision,
            unsupported-precision, not-quantised).
        ChildFailed: If TVM crashed, which `import_model` should have detected; `ChildClosed` if `cancellation` was used.

    Source: ``autotvm.task.extract_from_program`` (TVM v0.19).
    """
    target = parse_target(target).without_libraries()
    tasks = call_in_child(
        _CHILD,
        "extract",
        {
            "path": str(model.path.absolute()),
            "bindings": [each.binding.to_json() for each in model.each],
            "weights": list(model.weights),
            "parts": [part.to_json() for part in model.parts],
            "target": target.to_json(),
            "alternatives": alternatives,
            "precision": network_precision(precision, target, model.quantisation).value,
        },
        limits=replace(limits or ChildLimits(), reply_bytes=WORKLOADS_BYTES),
        access=Access(reads=(model.path,)),
        timeout_sec=_TIMEOUT_SEC + _MORE_SEC * (len(model.each) - 1),
        env=CHILD_ENVIRONMENT,
        cancellation=cancellation,
    )
    return tuple(TuningTask.from_json(task) for task in tasks)


def check_workloads(
    tasks: Sequence[TuningTask],
    *,
    limits: ImportLimits | None = None,
    cancellation: Cancellation | None = None,
) -> None:
    """Check that the computation of each task is the one that its key, operations and arguments are of.

    The child that extracted them had read a stranger's file, and may have told anything. They are made anew from the computations alone,
    in another child.

    Raises:
        InvalidModelError: ``other-workload``, if one is not; ``workloads-crashed`` and the like, if a computation cannot be read.
    """
    workloads = [task.workload for task in tasks]
    described = call_model_child(
        "workloads",
        "reading the model's kernels again",
        _CHILD,
        "describe_workloads",
        {"irs": [workload.ir for workload in workloads]},
        limits or ImportLimits(),
        Access(),
        cancellation=cancellation,
    )
    for workload, facts in zip(workloads, described, strict=True):
        told = [workload.key, workload.flops, [spec.to_json() for spec in workload.args]]
        if facts != told:
            raise InvalidModelError(
                f"the import told another computation of the kernel {clean(workload.name, 60)} than it is: the model may have taken it over",
                code="other-workload",
            )
