"""Compute convolutions and matrix products by constant weights with bfloat16 dot products (ADR 0058).

Activations are rounded as `narrow_products` says. Depthwise convolutions have too few products for the instruction, but read half as much:
they widen what is stored as bfloat16.
Everything else is float32: sums, element-wise steps, normalisations, reductions, and products that are too small to gain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, prod
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, static_shape, tensor_dtype
from tunefarm_tuning.tvm.kernels.bfloat16_kernels import bfloat16_conv2d, bfloat16_matmul
from tunefarm_tuning.tvm.kernels.dot_products import (
    BFLOAT16,
    BFLOAT16_MATRICES,
    DotProduct,
    Groups,
    Runs,
    packed_groups,
)
from tunefarm_tuning.tvm.kernels.narrow_depthwise import narrow_depthwise_conv2d
from tunefarm_tuning.tvm.transform.convolutions.convolution import (
    CHANNELS_LAST,
    convolution_name,
    geometry,
    groups_of,
    instructions_of_groups,
    is_depthwise,
    runs_of_call,
)
from tunefarm_tuning.tvm.transform.narrow_products import (
    ELEMENT_WISE,
    NarrowProductRewriter,
    variables_of,
    weights_rank,
)
from tunefarm_tuning.tvm.transform.weights.formats import store
from tunefarm_tuning.workload.precision import Precision

_NARROW, _WIDE = "bfloat16", "float32"
_MIN_PRODUCTS = 16
"""Fewest products of a sum: a shorter sum takes no longer than rounding its activations would."""
_MIN_RESULTS = 8
"""Fewer results leave more than half of a vector empty."""
_MIN_CHANNELS = 3
"""A convolution of fewer channels leaves half of each pair of factors empty, or has no sum over channels."""
_MOST_OF_FLOATS = 0.7
"""Most instructions of a grouped convolution, as a share of those in float32, which round nothing and join small groups in a vector."""


def multiply_bfloat16(mod: tvm.IRModule, lanes: int, matrix_lanes: int = 0) -> tvm.IRModule:
    """Return the module with 2-D convolutions (channels last) and products by a matrix computed in bfloat16.

    Depthwise convolutions compute in float32, and read bfloat16.

    Args:
        mod: Its constants are folded.
        lanes: Sums of the target's instruction (`target.dot_products.bfloat16_lanes`).
        matrix_lanes: Results of a row of its instruction for two rows (`target.dot_products.bfloat16_matrix_lanes`); 0 without one.
    """
    rewritten = rewrite_main(mod, _Bfloat16ProductRewriter(mod, lanes, matrix_lanes))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return result


@relax.expr_functor.mutator
class _Bfloat16ProductRewriter(NarrowProductRewriter):
    dtype = _NARROW

    def __init__(self, mod: tvm.IRModule, lanes: int, matrix_lanes: int) -> None:
        self._lanes = {BFLOAT16: lanes, BFLOAT16_MATRICES: matrix_lanes}
        # By the address of the constant, which is kept alive here. None: bfloat16 cannot represent it.
        self._weights: dict[tuple[int, DotProduct, Groups, bool], tuple[Any, Any]] = {}
        self._for_depthwise: set[Any] = set()
        super().__init__(mod)

    def product_of(self, call: Any) -> Callable[[Any, Any], Any] | None:
        rank = weights_rank(call)
        if rank is None or tensor_dtype(call.args[0]) != _WIDE:
            return None
        if is_depthwise(call):
            return partial(_depthwise, call) if call.args[0] in self._for_depthwise else None
        data, weight = call.args
        *kernel, depth, results = (int(size) for size in weight.ty.shape)
        if prod(kernel) * depth < _MIN_PRODUCTS or results < _MIN_RESULTS:
            return None
        if (rank == 4 and depth < _MIN_CHANNELS) or len(data.ty.shape) == 1:
            return None
        way = self._way(call)
        if way is None:
            return None
        kind, groups = way
        compute = _convolution(call, groups) if rank == 4 else partial(bfloat16_matmul, channels=results)
        if compute is None:
            return None
        # The rows that one instruction takes would lie in one run.
        runs = runs_of_call(call, kind.products) if kind.rows == 1 else None
        packed_weight = self._packed(weight, kind, groups, in_runs=runs is not None)
        compute = partial(compute, kind=kind)
        return None if packed_weight is None else partial(_product, call, compute, packed_weight, runs)

    def _way(self, call: Any) -> tuple[DotProduct, Groups] | None:
        """Return the kind of product and the groups that take the fewest instructions; None if grouped channels take hardly fewer than in float32."""
        *_, width, _ = static_shape(call) or ()
        *kernel, depth, results = (int(size) for size in call.args[1].ty.shape)
        count, lanes = groups_of(call), self._lanes[BFLOAT16]
        per_group = results // count

        def instructions(way: tuple[DotProduct, int]) -> tuple[float, int]:
            kind, merged = way
            taps, run = prod(kernel), depth
            if kind.rows == 1 and runs_of_call(call, kind.products) is not None:
                taps, run = prod(kernel[:-1]), depth * kernel[-1]
            each = instructions_of_groups(
                count, run, per_group, merged, lanes=self._lanes[kind], products=kind.products, rows=1
            )
            return ceil(width / kind.rows) * taps * each, merged

        # The second row of a matrix of one would be empty.
        kinds = [BFLOAT16, BFLOAT16_MATRICES] if self._lanes[BFLOAT16_MATRICES] and width > 1 else [BFLOAT16]
        ways = [(kind, merged) for kind in kinds for merged in range(1, min(count, lanes) + 1)]
        kind, merged = best = min(ways, key=instructions)
        vectors = ceil(results / lanes) if per_group < lanes / 2 else count * ceil(per_group / lanes)
        if count > 1 and instructions(best)[0] > _MOST_OF_FLOATS * width * prod(kernel) * depth * vectors:
            return None
        return kind, Groups(count=count, depth=depth, results=per_group, merged=merged)

    def _packed(self, weight: Any, kind: DotProduct, groups: Groups, *, in_runs: bool) -> Any:
        """Return weights as bfloat16, packed, their columns one behind the other `in_runs`; None if it cannot represent them."""
        address = (weight.value.__chandle__(), kind, groups, in_runs)
        if address not in self._weights:
            value = weight.value.numpy()
            stored = store(value, Precision.BFLOAT16_WEIGHTS, {value.ndim - 1})
            constant = None
            if stored is not None:
                array = stored.arrays[0]
                array = array.reshape(array.shape[0], 1, -1, array.shape[-1]) if in_runs else array
                constant = relax.const(
                    packed_groups(array, groups, self._lanes[kind], kind.products), _NARROW
                )
            self._weights[address] = (weight, constant)
        return self._weights[address][1]

    def look_at_values(self, bindings: Sequence[Any], values: Mapping[Any, Any], outputs: set[Any]) -> None:
        """Find out which tensors depthwise convolutions read as bfloat16: those that a step computes that can round them, for no others."""
        readers: dict[Any, list[Any]] = {}
        for binding in bindings:
            for variable in variables_of(binding.value if isinstance(binding, relax.VarBinding) else binding):
                readers.setdefault(variable, []).append(getattr(binding, "value", None))
        for variable, calls in readers.items():
            made_by = operator_name(values.get(variable))
            if variable in outputs or made_by not in ELEMENT_WISE | {"relax.nn.conv2d"}:
                continue
            if any(map(is_depthwise, calls)) and all(
                is_depthwise(call) or operator_name(call) in ELEMENT_WISE or self.product_of(call) is not None
                for call in calls
            ):
                self._for_depthwise.add(variable)


def _depthwise(call: Any, builder: Any, data: Any) -> Any:
    compute = partial(narrow_depthwise_conv2d, zero=0, **geometry(call))
    return builder.call_te(compute, data, call.args[1], primfunc_name_hint="depthwise_conv2d_of_bfloat16")


def _product(
    call: Any, compute: Callable[..., Any], weight: Any, runs: Runs | None, builder: Any, data: Any
) -> Any:
    if runs is not None:
        batch, height, width, channels = (int(size) for size in call.args[0].ty.shape)
        data = builder.emit(relax.op.reshape(data, [batch, height, width * channels]))
        compute = partial(compute, runs=runs)
    name = "bfloat16_matmul" if operator_name(call) == "relax.matmul" else "bfloat16_conv2d"
    return builder.call_te(compute, data, weight, primfunc_name_hint=name)


def _convolution(call: Any, groups: Groups) -> Callable[..., Any] | None:
    if convolution_name(call, CHANNELS_LAST) is None:
        return None
    channels = groups.count * groups.results
    return partial(
        bfloat16_conv2d, channels=channels, groups=groups if groups.count > 1 else None, **geometry(call)
    )
