"""The graph pipeline: turns an ONNX file into a Relax module whose kernels are the workloads to tune.

`prepare` is deterministic, so extracting tasks today and compiling tomorrow see the same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tvm

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.core.untrusted_text import clean_message
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork, bound_network
from tunefarm_tuning.frontend.onnx.parts.cut import CutModel, cut
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.target import pipeline_name, tvm_target
from tunefarm_tuning.tvm.base.tir import CPU_ONLY, walk
from tunefarm_tuning.tvm.frontend.importer import import_bound
from tunefarm_tuning.tvm.kernels.weight_packing import mark_constants
from tunefarm_tuning.tvm.transform.horizontal_fusion.selection import Selection, select_faster, select_none
from tunefarm_tuning.tvm.transform.passes import Layout, PassContext, passes_for
from tunefarm_tuning.tvm.transform.weights.storage import Storage, store_weights
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.runtime_part import OpenSpec, RuntimePart
from tunefarm_tuning.workload.task import TensorSpec

_LAYOUTS = {
    "cpu": (Layout.BY_OPERATOR, Layout.AROUND_CONVOLUTIONS),
    # The other layout leaves transposes around each convolution, which only CPUs propagate away.
    "gpu": (Layout.BY_OPERATOR,),
}
"""The channels-last layouts to try, in order, by pipeline."""

_KEPT_LAYOUT = (
    "tensors keep the order of dimensions that the file gives them, in which convolutions are slower, for "
    "TVM cannot lay this network out with channels last: "
)

_LEFT_TO_RUN_TIME = {"relax.reshape", "relax.shape_to_tensor"}
"""Operators that the virtual machine runs itself if a shape is known only at run time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A prepared network.

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
) -> LoadedModel:
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
    return LoadedModel(
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
        The module, and a sentence if its convolutions had to keep their layout.

    Raises:
        InvalidModelError: unsupported-operator, if TVM cannot make kernels of it.
    """
    reason = ""
    for layout in _LAYOUTS[pipeline_name(target)]:
        try:
            context = PassContext(target=target, layout=layout, select=select, precision=precision)
            return _lower(mod, context), ()
        except Exception as error:  # noqa: BLE001  (TVM's layout rules raise anything; another layout may work)
            # They lack some operators: a Max of constants next to a convolution, for example.
            raise_if_out_of_memory(error)
            reason = clean_message(error)
    try:
        context = PassContext(target=target, layout=Layout.AS_FILE, select=select, precision=precision)
        return _lower(mod, context), (_KEPT_LAYOUT + reason,)
    except InvalidModelError:
        raise
    except Exception as error:
        raise_if_out_of_memory(error)
        raise InvalidModelError(
            f"TVM imports the model, but cannot make kernels of it: {clean_message(error)}",
            code="unsupported-operator",
        ) from error


def _lower(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    if not context.on_cpu:
        _refuse_cpu_only_kernels(mod)
    passes = [graph_pass.bound(context) for graph_pass in passes_for(context)]
    with tvm_target(context.target):
        lowered = tvm.transform.Sequential(passes)(mod)
    _refuse_leftovers(lowered)
    # TVM's schedule rules for GPUs do not pack weights.
    return mark_constants(lowered, may_pack=context.on_cpu)


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
