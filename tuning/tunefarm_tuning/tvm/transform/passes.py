"""The graph passes in order, with their levels and targets.

A pass is added to `PASSES`, and nowhere else. It is a pass of TVM's, or a function of ours from module to module. Levels are like those
of ONNX Runtime's graph transformers: a pass relies on what the levels before its own have done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum

import tvm
from tvm import relax

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean_message
from tunefarm_tuning.target.dot_products import (
    ByteProducts,
    bfloat16_lanes,
    bfloat16_matrix_lanes,
    byte_products,
)
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.index_bounds import bound_computed_indices
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.target import pipeline_name
from tunefarm_tuning.tvm.kernels.weight_packing import mark_constants
from tunefarm_tuning.tvm.transform.attention import fuse_attention
from tunefarm_tuning.tvm.transform.bfloat16_products import multiply_bfloat16
from tunefarm_tuning.tvm.transform.constant_indices import bound_constant_indices
from tunefarm_tuning.tvm.transform.convolutions.dilated import split_dilated_convolutions
from tunefarm_tuning.tvm.transform.convolutions.narrow import widen_narrow_convolutions
from tunefarm_tuning.tvm.transform.convolutions.transposed import decompose_transposed_convolutions
from tunefarm_tuning.tvm.transform.float16_products import multiply_float16
from tunefarm_tuning.tvm.transform.float32_arithmetic import (
    add_up_float16_in_float32,
    compute_bfloat16_in_float32,
)
from tunefarm_tuning.tvm.transform.horizontal_fusion.fuse import fuse_horizontally
from tunefarm_tuning.tvm.transform.horizontal_fusion.selection import (
    Selection,
    select_faster,
    select_read_in_place,
)
from tunefarm_tuning.tvm.transform.int8_products import multiply_int8
from tunefarm_tuning.tvm.transform.int8_recurrences import multiply_rounded_states
from tunefarm_tuning.tvm.transform.layout import convert_layout, convolve_channels_last
from tunefarm_tuning.tvm.transform.legalization import CPU_RULES, GPU_RULES, write_scans
from tunefarm_tuning.tvm.transform.pointwise_depthwise import fuse_depthwise
from tunefarm_tuning.tvm.transform.simplify import (
    crop_kernels,
    drop_reshapes,
    fold_pads,
    simplify_powers,
    simplify_takes,
    split_extremes,
)
from tunefarm_tuning.tvm.transform.transposes.cancel import cancel_transposes
from tunefarm_tuning.tvm.transform.transposes.propagate_down import propagate_transposes_down
from tunefarm_tuning.tvm.transform.transposes.propagate_up import propagate_transposes_up
from tunefarm_tuning.tvm.transform.weights.fold import fold_batch_norms, fold_weights
from tunefarm_tuning.tvm.transform.weights.fold_calls import fold_calls
from tunefarm_tuning.workload.precision import Precision


class Level(IntEnum):
    """The level of a pass: the form of the graph that it needs.

    Members:
        SIMPLIFY: The operators of the file, with channels first.
        FUSE: Folded constants, and operators in their simplest form.
        LAYOUT: All rewriting that needs channels first is done.
        SPECIALIZE: The final layout, and folded weights.
        LOWER: Nothing is left but to make kernels of operators.
    """

    SIMPLIFY = 1
    FUSE = 2
    LAYOUT = 3
    SPECIALIZE = 4
    LOWER = 5


class Layout(Enum):
    """The layout of tensors."""

    BY_OPERATOR = "by-operator"  # channels last, by TVM's layout rule for each operator
    AROUND_CONVOLUTIONS = "around-convolutions"  # channels last, between transposes around each convolution
    AS_FILE = "as-file"


MAX_FUSED = 100
"""Operators in a kernel. To schedule and compile one takes time by the square of their number: TVM's 256 of a forest take ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """The context of passes: target, layout, and the selection of parallel products and convolutions to fuse.

    Attributes:
        precision: What products are computed in, for which the target has the instructions.
    """

    target: Target
    layout: Layout
    select: Selection = select_faster
    precision: Precision = Precision.AS_MODEL

    @property
    def on_cpu(self) -> bool:
        """Whether the target is a CPU."""
        return pipeline_name(self.target) == "cpu"

    @property
    def byte_products(self) -> ByteProducts | None:
        """The target's instruction for products of int8; None if it has none."""
        return byte_products(self.target)

    @property
    def selection(self) -> Selection:
        """Selects the parallel products and convolutions to fuse on this target."""
        # `select_faster` follows measurements on CPUs. On a GPU a large kernel is better than three small ones.
        return select_read_in_place if self.select is select_faster and not self.on_cpu else self.select


Rewrite = Callable[[tvm.IRModule, PassContext], tvm.IRModule]
Condition = Callable[[PassContext], bool]


def _on_cpu(context: PassContext) -> bool:
    return context.on_cpu


def _on_gpu(context: PassContext) -> bool:
    return not context.on_cpu


def _laid_out(layout: Layout) -> Condition:
    return lambda context: context.layout is layout


def _multiplying_in(precision: Precision) -> Condition:
    return lambda context: context.precision is precision


def _in_float32(context: PassContext) -> bool:
    return context.on_cpu and not context.precision.multiplies


def _with_weights_in_float32(context: PassContext) -> bool:
    return _in_float32(context) and not context.precision.stores_weights


def _ours(rewrite: Callable[[tvm.IRModule], tvm.IRModule]) -> Rewrite:
    """Return a pass of ours that does not depend on the context."""
    return lambda mod, _context: rewrite(mod)


def _fuse_operators(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    """Apply TVM's pipeline `zero`, but for its `LegalizeOps`, which makes kernels of what our rules leave as operators."""
    steps = [
        relax.transform.LegalizeOps(CPU_RULES if context.on_cpu else GPU_RULES),  # what rules wrote
        relax.transform.AnnotateTIROpPattern(),
        tvm.transform.module_pass(lambda mod, _: fold_calls(mod), opt_level=0, name="FoldConstant"),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with tvm.transform.PassContext(config={"relax.FuseOps.max_depth": MAX_FUSED}):
        return tvm.transform.Sequential(steps)(mod)


def _fuse_horizontally(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    return fuse_horizontally(mod, context.selection)


def _fuse_attention(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    return fuse_attention(mod, context.target)


def _fuse_depthwise(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    return fuse_depthwise(mod, context.target)


def _mark_constants(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    # TVM's schedule rules for GPUs do not pack weights.
    return mark_constants(mod, may_pack=context.on_cpu)


def _multiply_int8(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    instruction = context.byte_products
    assert instruction is not None, "the pass is for targets that have it"
    return multiply_rounded_states(multiply_int8(mod, instruction), instruction)


def _multiply_bfloat16(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    return multiply_bfloat16(mod, bfloat16_lanes(context.target), bfloat16_matrix_lanes(context.target))


@dataclass(frozen=True, slots=True)
class GraphPass:
    """A row of the table.

    Attributes:
        step: A pass of TVM's, or a function of ours.
        when: Says for which targets and layouts it runs.
    """

    name: str
    level: Level
    step: tvm.transform.Pass | Rewrite
    when: Condition = lambda _context: True

    def bound(self, context: PassContext) -> tvm.transform.Pass:
        """Return TVM's pass object for a context."""
        step = self.step
        if isinstance(step, tvm.transform.Pass):
            return step
        return tvm.transform.module_pass(lambda mod, _: step(mod, context), opt_level=0, name=self.name)


PASSES: tuple[GraphPass, ...] = (
    GraphPass("ComputeBfloat16InFloat32", Level.SIMPLIFY, _ours(compute_bfloat16_in_float32)),
    GraphPass("BoundConstantIndices", Level.SIMPLIFY, _ours(bound_constant_indices)),
    # TVM runs kernels that the importer wrote, where it folds constants
    GraphPass("BoundComputedIndices", Level.SIMPLIFY, _ours(bound_computed_indices)),
    GraphPass("FoldWeights", Level.SIMPLIFY, _ours(fold_weights)),
    GraphPass("FoldBatchNorms", Level.SIMPLIFY, _ours(fold_batch_norms)),
    GraphPass("FoldConstant", Level.SIMPLIFY, _ours(fold_calls)),
    GraphPass("SimplifyPowers", Level.SIMPLIFY, _ours(simplify_powers)),
    GraphPass("DropReshapes", Level.SIMPLIFY, _ours(drop_reshapes)),
    GraphPass("FoldPads", Level.SIMPLIFY, _ours(fold_pads)),
    GraphPass("CropKernels", Level.SIMPLIFY, _ours(crop_kernels)),
    GraphPass("SimplifyTakes", Level.SIMPLIFY, _ours(simplify_takes), _on_cpu),
    GraphPass(
        "DecomposeTransposedConvolutions", Level.SIMPLIFY, _ours(decompose_transposed_convolutions), _on_cpu
    ),
    GraphPass("DecomposeOpsForInference", Level.SIMPLIFY, relax.transform.DecomposeOpsForInference()),
    GraphPass("CanonicalizeBindings", Level.SIMPLIFY, relax.transform.CanonicalizeBindings()),
    GraphPass("FuseHorizontally", Level.FUSE, _fuse_horizontally),
    GraphPass("AddUpFloat16InFloat32", Level.FUSE, _ours(add_up_float16_in_float32)),
    GraphPass("ConvertLayout", Level.LAYOUT, _ours(convert_layout), _laid_out(Layout.BY_OPERATOR)),
    GraphPass(
        "ConvolveChannelsLast",
        Level.LAYOUT,
        _ours(convolve_channels_last),
        _laid_out(Layout.AROUND_CONVOLUTIONS),
    ),
    GraphPass("Normalize", Level.LAYOUT, relax.transform.Normalize()),
    GraphPass("PropagateTransposesDown", Level.LAYOUT, _ours(propagate_transposes_down), _on_cpu),
    GraphPass("PropagateTransposesUp", Level.LAYOUT, _ours(propagate_transposes_up), _on_cpu),
    GraphPass("CancelTransposes", Level.LAYOUT, _ours(cancel_transposes), _on_gpu),
    GraphPass("CanonicalizeBindings", Level.LAYOUT, relax.transform.CanonicalizeBindings()),
    GraphPass("DeadCodeElimination", Level.LAYOUT, relax.transform.DeadCodeElimination()),
    GraphPass("FoldWeights", Level.LAYOUT, _ours(fold_weights)),
    GraphPass("FoldConstant", Level.LAYOUT, _ours(fold_calls)),
    GraphPass(
        "MultiplyInt8", Level.SPECIALIZE, _multiply_int8, lambda context: context.byte_products is not None
    ),
    GraphPass("MultiplyBfloat16", Level.SPECIALIZE, _multiply_bfloat16, _multiplying_in(Precision.BFLOAT16)),
    GraphPass(
        "MultiplyFloat16", Level.SPECIALIZE, _ours(multiply_float16), _multiplying_in(Precision.FLOAT16)
    ),
    GraphPass("WidenNarrowConvolutions", Level.SPECIALIZE, _ours(widen_narrow_convolutions), _on_cpu),
    GraphPass("SplitDilated", Level.SPECIALIZE, _ours(split_dilated_convolutions), _in_float32),
    GraphPass("FuseAttention", Level.SPECIALIZE, _fuse_attention, _in_float32),
    GraphPass("FuseDepthwise", Level.SPECIALIZE, _fuse_depthwise, _with_weights_in_float32),
    GraphPass("SplitExtremes", Level.SPECIALIZE, _ours(split_extremes), _on_cpu),
    GraphPass("WriteScans", Level.LOWER, _ours(write_scans), _on_cpu),
    # GPUs have their own kernels for sorting and sampling: made before the generic ones of LegalizeOps
    GraphPass("DispatchSampling", Level.LOWER, relax.backend.DispatchSampling()),
    GraphPass("DispatchSortScan", Level.LOWER, relax.backend.DispatchSortScan()),
    GraphPass("LegalizeOps", Level.LOWER, relax.transform.LegalizeOps(CPU_RULES), _on_cpu),
    GraphPass("LegalizeOps", Level.LOWER, relax.transform.LegalizeOps(GPU_RULES), _on_gpu),
    GraphPass("BoundComputedIndices", Level.LOWER, _ours(bound_computed_indices)),
    GraphPass("FuseOperators", Level.LOWER, _fuse_operators),
    GraphPass("MarkConstants", Level.LOWER, _mark_constants),
)
"""All passes, in the order in which they run."""


def passes_for(context: PassContext) -> list[GraphPass]:
    """Return the passes that run in a context, in order."""
    return [graph_pass for graph_pass in PASSES if graph_pass.when(context)]


_LAYOUT_RULES = "ConvertLayout"
"""The pass of TVM that asks each operator for its layout rule. Some rules are wrong, which is no news."""


class GraphPassError(Exception):
    """A graph pass failed.

    Attributes:
        pass_name: The pass, or the check after all passes.
        layout: The layout that was tried.
        error: What it raised.
    """

    def __init__(self, pass_name: str, layout: Layout, error: Exception) -> None:
        super().__init__(f"{pass_name} failed with {type(error).__name__}: {clean_message(error)}")
        self.pass_name = pass_name
        self.layout = layout
        self.error = error

    @property
    def is_expected(self) -> bool:
        """Whether the failure is a layout rule of TVM's or a refusal, and no sign of a bug of ours."""
        return self.pass_name == _LAYOUT_RULES or isinstance(self.error, InvalidModelError)


def apply_pass(graph_pass: GraphPass, mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
    """Return the module after a pass.

    Raises:
        GraphPassError: If the pass fails.
        MemoryError: If the memory limit ended it.
    """
    try:
        return tvm.transform.Sequential([graph_pass.bound(context)])(mod)
    except Exception as error:
        raise_if_out_of_memory(error)
        raise GraphPassError(graph_pass.name, context.layout, error) from error
