"""The graph pipeline: from an ONNX file to a Relax module whose kernels are the workloads to tune.

`prepare` is deterministic, so extracting tasks today and compiling tomorrow see the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.binding import bind_inputs
from tunefarm_tuning.frontend.onnx.model_file import read_model
from tunefarm_tuning.target.int8_dot_product import dot_lanes
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.target import pipeline_name, tvm_target
from tunefarm_tuning.tvm.base.tir import CPU_ONLY, walk
from tunefarm_tuning.tvm.frontend.importer import import_bound
from tunefarm_tuning.tvm.kernels import resize as resize_kernels
from tunefarm_tuning.tvm.kernels.special_values import legalize_ops
from tunefarm_tuning.tvm.kernels.weight_packing import mark_constants
from tunefarm_tuning.tvm.transform import bfloat16_rounding, gpu_graph
from tunefarm_tuning.tvm.transform.bfloat16_graph import wide_arithmetic
from tunefarm_tuning.tvm.transform.channels_last import channels_last
from tunefarm_tuning.tvm.transform.combine import combine
from tunefarm_tuning.tvm.transform.combine_rule import Choose, in_place, never, where_it_pays
from tunefarm_tuning.tvm.transform.convolution import CHANNELS_LAST
from tunefarm_tuning.tvm.transform.few_outputs import widen_few_outputs
from tunefarm_tuning.tvm.transform.fold_batch_norm import fold_batch_norms
from tunefarm_tuning.tvm.transform.int8_products import integer_products
from tunefarm_tuning.tvm.transform.powers import plain_powers
from tunefarm_tuning.tvm.transform.subpixel import as_subpixels
from tunefarm_tuning.tvm.transform.takes import plain_takes
from tunefarm_tuning.tvm.transform.transposes.cancel import plain_transposes
from tunefarm_tuning.tvm.transform.transposes.lift import lift_transposes
from tunefarm_tuning.tvm.transform.transposes.sink import sink_transposes
from tunefarm_tuning.tvm.transform.unreached_taps import drop_unreached_taps
from tunefarm_tuning.tvm.transform.weights.fold import fold_weights
from tunefarm_tuning.tvm.transform.weights.storage import Storage, store_weights
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.task import TensorSpec

_LAYOUTS = {
    **{name: list(layouts) for name, layouts in CHANNELS_LAST.items()},
    # These have no kernels for channels last; named, since they would follow the layout of their input otherwise.
    "relax.nn.conv1d_transpose": ["NCW", "IOW"],
    "relax.nn.conv2d_transpose": ["NCHW", "IOHW"],
    "relax.nn.conv3d_transpose": ["NCDHW", "IODHW"],
}
"""Channels last. On a CPU the innermost loop is then contiguous and vectorises: 128 against 102 GFLOPS on a 3x3 layer. On a GPU
neighbouring threads read neighbouring addresses however small the image, and it is what tensor cores take (ADR 0026)."""

_KERNELS_OF_CPUS = {**resize_kernels.KERNELS, **bfloat16_rounding.KERNELS}

_KEPT_LAYOUT = (
    "tensors keep the order of dimensions that the file gives them, in which convolutions are slower, for "
    "TVM cannot lay this network out with channels last: "
)

# Left where a shape is known at run time only: the virtual machine runs them itself.
_LATER = {"relax.reshape", "relax.shape_to_tensor"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A prepared network.

    Attributes:
        module: ``main`` takes `inputs` in order and returns the outputs: a tensor where there is one, else a tuple.
        inputs: Under the names that the file gives them.
        storage: What became of its weights.
        warnings: Sentences for people, on what could not be done with it.
    """

    module: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    storage: Storage = field(default_factory=Storage)
    warnings: tuple[str, ...] = ()


def load_relax(
    path: Path | str,
    shapes: Mapping[str, Sequence[int]],
    target: Target,
    precision: Precision = Precision.AS_MODEL,
    *,
    choose: Choose = where_it_pays,
) -> LoadedModel:
    """Read an ONNX file that `import_model` has accepted, and prepare it for a target.

    Args:
        path: The file.
        shapes: `Model.shapes`.
        target: Decides between the pipelines, and what constants are folded with.
        precision: How to store its weights; for CPUs.
        choose: As of `prepare`. Where weights are stored in fewer bytes, nothing is combined whatever it says: branches
            side by side may each have another form, and none at all as one.

    Raises:
        InvalidModelError: If the file cannot be imported after all.
    """
    model = read_model(path)
    output_names = [value.name for value in model.graph.output]
    inputs = bind_inputs(model.graph, shapes)
    imported = import_bound(model, inputs)
    chosen = choose if precision is Precision.AS_MODEL else never
    prepared, warnings = prepare(imported.module, target, choose=chosen)
    module, storage = store_weights(prepared, precision)
    return LoadedModel(
        module=module,
        storage=storage,
        warnings=warnings,
        inputs=inputs,
        outputs=tuple(
            TensorSpec(name=name, shape=shape, dtype=dtype)
            for name, (shape, dtype) in zip(output_names, imported.outputs, strict=True)
        ),
    )


def prepare(
    mod: tvm.IRModule, target: Target, *, choose: Choose = where_it_pays
) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """Lay out, legalise and fuse an imported module: its PrimFuncs are then the kernels of the network.

    Deterministic: equal modules and targets of one pipeline and `dot_lanes` give equal kernels in equal order.

    Args:
        mod: From the importer.
        target: Decides between the pipelines, and what constants are folded with.
        choose: Which parallel products and convolutions are combined.

    Returns:
        The module, and a sentence where its convolutions had to keep their layout.

    Raises:
        InvalidModelError: unsupported-operator, where TVM cannot do it.
    """
    # The second leaves transposes around each convolution, which are moved away on CPUs alone.
    seconds = [_pass("ChannelsLast", channels_last)] if pipeline_name(target) == "cpu" else []
    refusal = ""
    for layout_pass in (relax.transform.ConvertLayout(_LAYOUTS), *seconds):
        try:
            return _lower(mod, target, choose, [layout_pass]), ()
        except Exception as error:  # noqa: BLE001  (whatever it is, another layout may do)
            # TVM's layout rules miss some operators (a Max of constants next to a convolution, say).
            raise_if_out_of_memory(error)
            refusal = _reason(error)
    try:
        return _lower(mod, target, choose, []), (_KEPT_LAYOUT + refusal,)
    except InvalidModelError:
        raise
    except Exception as error:
        raise_if_out_of_memory(error)
        raise InvalidModelError(
            f"TVM imports the model, but cannot make kernels of it: {_reason(error)}",
            code="unsupported-operator",
        ) from error


def _reason(error: Exception) -> str:
    return clean(" ".join(str(error).split()) or type(error).__name__, 300)


def _lower(mod: tvm.IRModule, target: Target, choose: Choose, layout_passes: list[Any]) -> tvm.IRModule:
    on_cpu = pipeline_name(target) == "cpu"
    # What was measured on CPUs says nothing of a GPU, which one large kernel fills better than three small ones.
    chosen = in_place if choose is where_it_pays and not on_cpu else choose
    lanes = dot_lanes(target)
    passes: list[Any] = [
        _pass("WideArithmetic", wide_arithmetic),
        _pass("FoldBatchNorms", fold_batch_norms),
        _pass("FoldWeights", fold_weights),
        relax.transform.FoldConstant(),
        _pass("PlainPowers", plain_powers),
        _pass("DropUnreachedTaps", drop_unreached_taps),
        *([_pass("PlainTakes", plain_takes), _pass("AsSubpixels", as_subpixels)] if on_cpu else []),
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        _pass("Combine", lambda mod: combine(mod, chosen)),
        *([] if on_cpu else [_pass("WideSums", gpu_graph.wide_sums)]),
        *layout_passes,
        relax.transform.Normalize(),
        *(
            [_pass("SinkTransposes", sink_transposes), _pass("LiftTransposes", lift_transposes)]
            if on_cpu
            else [_pass("PlainTransposes", plain_transposes)]
        ),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        _pass("FoldWeights", fold_weights),
        relax.transform.FoldConstant(),
        *([_pass("IntegerProducts", lambda mod: integer_products(mod, lanes))] if lanes else []),
        *([_pass("WidenFewOutputs", widen_few_outputs)] if on_cpu else []),
        # Sorting and sampling on a GPU have kernels of their own, to be put in before the rest is made generic.
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        legalize_ops(_KERNELS_OF_CPUS if on_cpu else gpu_graph.KERNELS),
        relax.get_pipeline("zero"),
    ]
    if not on_cpu:
        _refuse_loops_of_cpus(mod)
    with tvm_target(target):
        lowered = tvm.transform.Sequential(passes)(mod)
    _refuse_leftovers(lowered)
    # TVM's rules for GPUs do not pack weights.
    return mark_constants(lowered, may_pack=on_cpu)


def _pass(name: str, rewrite: Callable[[tvm.IRModule], tvm.IRModule]) -> Any:
    return tvm.transform.module_pass(lambda mod, _: rewrite(mod), opt_level=0, name=name)


def _refuse_loops_of_cpus(mod: tvm.IRModule) -> None:
    for func in mod.functions.values():
        if isinstance(func, tvm.tirx.PrimFunc) and CPU_ONLY in func.attrs:
            operator = str(func.attrs[CPU_ONLY])
            raise InvalidModelError(
                f"{operator} is compiled for CPUs only; tune the model for a CPU, or export it with unrolled steps",
                code="unsupported-operator",
                operator=operator,
            )


def _refuse_leftovers(mod: tvm.IRModule) -> None:
    """Refuse a module with operators that were to become kernels and did not: it would fail at the end of a compile."""
    for node in walk(mod["main"].body):
        if isinstance(node, tvm.ir.Op) and node.get_attr("FLegalize") is not None and node.name not in _LATER:
            name = node.name.removeprefix("relax.")
            raise InvalidModelError(
                f"TVM imports the model, but has no kernel for its operator '{name}' in this form",
                code="unsupported-operator",
                operator=name,
            )
