"""The graph pipeline: turns an ONNX file into a Relax module whose kernels are the workloads to tune.

A network that cannot be laid out in one way is laid out in another. A bug in a pass of ours would then be seen in its speed alone:
report and log name the pass that failed and its error, and tests fail on it.

`prepare` is deterministic, so extracting tasks today and compiling tomorrow see the same kernels.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tvm

from tunefarm_tuning.core.errors import InvalidModelError, InvariantError
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.core.untrusted_text import clean_message
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork, bound_network
from tunefarm_tuning.frontend.onnx.parts.cut import CutModel, cut
from tunefarm_tuning.process.running import STRICT_PASSES
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import pipeline_name, tvm_target
from tunefarm_tuning.tvm.base.tir import CPU_ONLY, walk
from tunefarm_tuning.tvm.frontend.importer import import_bound
from tunefarm_tuning.tvm.transform.horizontal_fusion.selection import Selection, select_faster, select_none
from tunefarm_tuning.tvm.transform.passes import GraphPassError, Layout, PassContext, apply_pass, passes_for
from tunefarm_tuning.tvm.transform.weights.storage import Storage, store_weights
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.runtime_part import OpenSpec, RuntimePart
from tunefarm_tuning.workload.task import TensorSpec

log = logging.getLogger(__name__)

_LAYOUTS = {
    "cpu": (Layout.BY_OPERATOR, Layout.AROUND_CONVOLUTIONS),
    # The other layout leaves transposes around each convolution, which only CPUs propagate away.
    "gpu": (Layout.BY_OPERATOR,),
}
"""The channels-last layouts to try, in order, by pipeline."""

_KEPT_LAYOUT = (
    "tensors keep the order of dimensions that the file gives them, in which convolutions are slower, because "
    "the network could not be laid out with channels last: "
)

_OTHER_LAYOUT = (
    "the network is laid out in its second-best way, in which it can be slower, because a graph pass of tunefarm failed in the "
    "best one. This is a bug; please report it: "
)

_LEFT_TO_RUN_TIME = {"relax.reshape", "relax.shape_to_tensor"}
"""Operators that the virtual machine runs itself if a shape is known only at run time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxNetwork:
    """A network in Relax, prepared for a target.

    Attributes:
        module: ``main`` takes `inputs` in order and returns the outputs: a tensor if there is one, else a tuple.
        inputs: Under the names that the file gives them.
        outputs: Likewise.
        parts: The ONNX models of the parts that ONNX Runtime runs, which `main` calls by number.
        warnings: Sentences for people about what could not be done with it.
    """

    module: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[OpenSpec, ...]
    parts: tuple[bytes, ...] = ()
    storage: Storage = field(default_factory=Storage)
    warnings: tuple[str, ...] = ()


@span("read and prepare the network", SpanKind.GRAPH)
def load_relax(
    path: Path | str,
    binding: Binding,
    target: Target,
    precision: Precision = Precision.AS_MODEL,
    *,
    parts: Sequence[RuntimePart] = (),
    select: Selection = select_faster,
) -> RelaxNetwork:
    """Read an ONNX file that `import_model` has accepted, and prepare it for a target.

    Args:
        path: The file.
        binding: `Model.binding`.
        target: Decides which passes run, and constants are folded with it.
        precision: Format of stored weights, or of products; for CPUs.
        parts: `Model.parts`.
        select: As for `prepare`. If weights are stored in fewer bytes, nothing is fused horizontally: the branches may each have
            a weight format, and their joint weight none.

    Raises:
        InvalidModelError: If the file cannot be imported after all.
    """
    network = bound_network(path, binding)
    output_names = [value.name for value in network.model.graph.output]
    halves = cut(network.model, parts) if parts else CutModel(network.model, ())
    imported = import_bound(
        BoundNetwork(model=halves.compiled, inputs=network.inputs),
        [spec for part in parts for spec in part.outputs],
    )
    selection = select_none if precision.stores_weights else select
    prepared, warnings = prepare(imported.module, target, select=selection, precision=precision)
    module, storage = store_weights(prepared, precision)
    return RelaxNetwork(
        module=module,
        storage=storage,
        warnings=warnings,
        inputs=network.inputs,
        parts=halves.parts,
        outputs=tuple(
            OpenSpec(name=name, shape=shape, dtype=dtype)
            for name, (shape, dtype) in zip(output_names, imported.outputs, strict=True)
        ),
    )


def prepare(
    mod: tvm.IRModule,
    target: Target,
    *,
    select: Selection = select_faster,
    precision: Precision = Precision.AS_MODEL,
) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """Lay out, legalise and fuse an imported module: its PrimFuncs are then the kernels of the network.

    Deterministic: equal modules, for targets of one pipeline and of equal `dot_product_lanes`, give equal kernels in equal order.

    Args:
        mod: From the importer.
        target: Decides which passes run, and constants are folded with it.
        select: Selects the parallel products and convolutions to fuse.
        precision: What products are computed in, for which the target has the instructions; what weights are stored in is `store_weights`'s.

    Returns:
        The module, and a sentence for people if the best layout failed.

    Raises:
        InvalidModelError: unsupported-operator, if TVM cannot make kernels of it.
    """
    failures: list[GraphPassError] = []
    for layout in (*_LAYOUTS[pipeline_name(target)], Layout.AS_FILE):
        context = PassContext(target=target, layout=layout, select=select, precision=precision)
        try:
            lowered = _lower(mod, context)
        except GraphPassError as failure:
            _report(failure)
            failures.append(failure)
        else:
            _raise_if_strict(failures)
            return lowered, tuple(_warnings(failures, layout))
    last = failures[-1]
    if isinstance(last.error, InvalidModelError):
        raise last.error
    raise InvalidModelError(
        f"TVM imports the model, but cannot make kernels of it: {clean_message(last.error)}",
        code="unsupported-operator",
    ) from last.error


def _warnings(failures: Sequence[GraphPassError], layout: Layout) -> Iterator[str]:
    """Yield a sentence for people about what failed before a layout worked."""
    if not failures:
        return
    reasons = "; ".join(dict.fromkeys(map(str, failures)))
    if layout is Layout.AS_FILE:
        yield _KEPT_LAYOUT + reasons
    elif not all(failure.is_expected for failure in failures):
        yield _OTHER_LAYOUT + "; ".join(
            dict.fromkeys(str(failure) for failure in failures if not failure.is_expected)
        )


def _report(failure: GraphPassError) -> None:
    """Write the failure to the log, with its traceback if it can be a bug of ours."""
    log.warning(
        "graph pass failed in layout %s: %s",
        failure.layout.value,
        failure,
        exc_info=None if failure.is_expected else failure.error,
    )


def _raise_if_strict(failures: list[GraphPassError]) -> None:
    """Raise the first failure that can be a bug of ours, if the environment asks for that, as that of our tests does.

    Raises:
        InvariantError: It names the pass and its error.
    """
    surprising = next((failure for failure in failures if not failure.is_expected), None)
    if surprising is not None and os.environ.get(STRICT_PASSES):
        raise InvariantError(
            f"graph pass {surprising}, in layout {surprising.layout.value}; another layout works"
        ) from surprising


def _lower(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    """Apply the passes of a context.

    Raises:
        GraphPassError: If one fails, or an operator is left without a kernel.
        InvalidModelError: unsupported-operator, if an operator has no kernel for this target in any layout.
    """
    if not context.on_cpu:
        _refuse_cpu_only_kernels(mod)
    lowered = mod
    with tvm_target(context.target):
        for graph_pass in passes_for(context):
            lowered = apply_pass(graph_pass, lowered, context)
    try:
        _refuse_leftovers(lowered)
    except InvalidModelError as error:
        raise GraphPassError("the check for kernels", context.layout, error) from error
    return lowered


def _refuse_cpu_only_kernels(mod: tvm.IRModule) -> None:
    for func in mod.functions.values():
        if isinstance(func, tvm.tirx.PrimFunc) and CPU_ONLY in func.attrs:
            operator = str(func.attrs[CPU_ONLY])
            raise InvalidModelError(
                f"{operator} is compiled for CPUs only; tune the model for a CPU, or export it with unrolled steps",
                code="unsupported-operator",
                operator=operator,
            )


def _refuse_leftovers(mod: tvm.IRModule) -> None:
    """Refuse a module with operators that should have become kernels: it would fail at the end of a compile."""
    for node in walk(mod["main"].body):
        is_left = isinstance(node, tvm.ir.Op) and node.get_attr("FLegalize") is not None
        if is_left and node.name not in _LEFT_TO_RUN_TIME:
            name = node.name.removeprefix("relax.")
            raise InvalidModelError(
                f"TVM imports the model, but has no kernel for its operator '{name}' in this form",
                code="unsupported-operator",
                operator=name,
            )
