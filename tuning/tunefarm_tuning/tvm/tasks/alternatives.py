"""Alternative algorithms for the convolutions of a prepared network: find promising ones, and put chosen ones in.

An alternative replaces one fused kernel, and is named by its workload key. The network around the kernel stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax, tirx

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.relax_graph import entry_names, operator_name, rewrite_main
from tunefarm_tuning.tvm.base.target import pipeline_name
from tunefarm_tuning.tvm.kernels import winograd
from tunefarm_tuning.tvm.kernels.direct_conv import DirectConv, match_direct_conv
from tunefarm_tuning.tvm.kernels.weight_packing import all_kernel_calls, kernel_arguments
from tunefarm_tuning.tvm.tasks.extract import Kernel, as_kernel, as_workload, kernel_flops, primfunc_workloads
from tunefarm_tuning.tvm.transform.weights.storage import StoredKernel
from tunefarm_tuning.workload.task import Alternative as AlternativeOf
from tunefarm_tuning.workload.task import TuningTask

_FLOPS_PER_BYTE = 6.0  # operations of a core in the time in which it moves a byte between kernels, roughly
_FLOPS_PER_WEIGHT_BYTE = 10.0  # more, since the weights of a network do not fit into a cache
_FLOAT_BYTES = 4
_MAX_EFFORT = 0.85  # as a share of the direct kernel's: a smaller gain is not tried
_MAX_EFFORT_RATIO = 1.3  # relative to the best alternative: the estimate is not more exact
_MIN_CHANNELS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An alternative algorithm for one fused kernel.

    Attributes:
        instead_of: The fused kernel's name in the module.
        workload_key: The workload key of the fused kernel.
        algorithm: ``"winograd-4"`` or ``"winograd-2"``.
        fixed: Its other kernels, by name; they are scheduled already.
        overhead: The estimated work of the fixed kernels, relative to that of the tuned kernel.
        conv: The convolution that the fused kernel begins with.
        m: A tile has m x m results.
        direct_flops: Operations of a call of the fused kernel.
        stored: The fused kernel, if its weights are stored in fewer bytes. The alternative's transformed weights are float32: rounding
            them would cost several times the accuracy.
    """

    instead_of: str
    workload_key: str
    algorithm: str
    tuned: Kernel
    fixed: Mapping[str, tirx.PrimFunc]
    overhead: float
    conv: DirectConv
    m: int
    direct_flops: float
    stored: StoredKernel | None = None


def find_alternatives(
    module: tvm.IRModule,
    target: Target,
    stored: Mapping[str, StoredKernel] | None = None,
    weights: Sequence[int] = (),
) -> list[Alternative]:
    """Return the alternatives of a prepared module that are worth a trial, in order of first use; none for a GPU.

    Args:
        module: The module.
        target: The target.
        stored: The kernels whose weights are stored in fewer bytes.
        weights: As for `primfunc_workloads`.
    """
    stored = stored or {}
    if pipeline_name(target) != "cpu":
        return []
    kernels = {
        kernel.name: kernel for kernel in primfunc_workloads(module, weights) if kernel.not_tunable is None
    }
    plain = {name: stored[name].plain if name in stored else module[name] for name in kernels}
    convs = {name: match_direct_conv(func) for name, func in plain.items()}
    constant = _with_constant_weights(module, convs)
    alternatives: list[Alternative] = []
    for name, kernel in kernels.items():
        conv = convs[name]
        if conv is None or name not in constant:
            continue
        if min(conv.data_shape[3], conv.out_shape[3]) < _MIN_CHANNELS:
            continue
        alternatives += [
            replace(alternative, stored=stored.get(name))
            for alternative in _worth_trying(plain[name], kernel, conv)
        ]
    return alternatives


def alternative_tasks(
    alternatives: Sequence[Alternative], target: Target, *, besides: Collection[str] = ()
) -> list[TuningTask]:
    """Return the tuning tasks of alternatives, `besides` those of some workload keys; several fused kernels may share one."""
    groups: dict[str, list[Alternative]] = {}
    for alternative in alternatives:
        if alternative.tuned.workload_key not in besides:
            groups.setdefault(alternative.tuned.workload_key, []).append(alternative)
    return [
        TuningTask(
            workload=as_workload(group[0].tuned),
            target=target,
            weight=sum(alternative.tuned.weight for alternative in group),
            alternative=AlternativeOf(
                algorithm=group[0].algorithm,
                # Kernels that compute the same may have several names in a network.
                instead_of=tuple(dict.fromkeys(alternative.workload_key for alternative in group)),
                overhead=max(alternative.overhead for alternative in group),
            ),
        )
        for group in groups.values()
    ]


def put_alternatives_in(
    module: tvm.IRModule, alternatives: Sequence[Alternative], choices: Mapping[str, str]
) -> tvm.IRModule:
    """Return a module with alternatives in place of their fused kernels: `choices` has the algorithm by the workload key."""
    chosen = {
        alternative.instead_of: alternative
        for alternative in alternatives
        if choices.get(alternative.workload_key) == alternative.algorithm
    }
    if not chosen:
        return module
    rewritten = rewrite_main(module, _AlternativeInserter(module, chosen))
    # The replaced kernels have no callers any more.
    return relax.transform.DeadCodeElimination(entry_names(rewritten))(rewritten)


def _worth_trying(func: tirx.PrimFunc, kernel: Kernel, conv: DirectConv) -> list[Alternative]:
    direct = _effort(kernel_flops(kernel.module), 9 * conv.data_shape[3] * conv.out_shape[3])
    efforts = {m: _winograd_effort(conv, m) for m in winograd.TILES}
    least = min(efforts.values())
    tried = [
        m for m in efforts if efforts[m] <= _MAX_EFFORT * direct and efforts[m] <= _MAX_EFFORT_RATIO * least
    ]
    by_effort = sorted(tried, key=lambda m: efforts[m])
    alternatives = (winograd_alternative(func, kernel, conv, m) for m in by_effort)
    return [alternative for alternative in alternatives if alternative is not None]


def winograd_alternative(func: tirx.PrimFunc, kernel: Kernel, conv: DirectConv, m: int) -> Alternative | None:
    """Return Winograd's algorithm for a fused kernel; None if the steps behind the convolution do not allow it."""
    output = winograd.output_transform(func, conv, m)
    if output is None:
        return None
    stem = f"{kernel.name}_winograd{m}"
    tuned = as_kernel(f"{stem}_matmul", winograd.matmul(conv, m), kernel.weight)
    return Alternative(
        instead_of=kernel.name,
        workload_key=kernel.workload_key,
        algorithm=f"winograd-{m}",
        tuned=tuned,
        fixed={f"{stem}_input": winograd.input_transform(conv, m), f"{stem}_output": output},
        overhead=_FLOPS_PER_BYTE * _moved_bytes(conv, m) / kernel_flops(tuned.module),
        conv=conv,
        m=m,
        direct_flops=kernel_flops(kernel.module),
    )


def _winograd_effort(conv: DirectConv, m: int) -> float:
    weights = (m + 2) ** 2 * conv.data_shape[3] * conv.out_shape[3]
    flops = 2.0 * weights * winograd.positions(conv, m)
    return _effort(flops, weights) + _FLOPS_PER_BYTE * _moved_bytes(conv, m)


def _effort(flops: float, weights: int) -> float:
    """Return the effort of a kernel in floating-point operations: its arithmetic, or the reading of its weights if that is more."""
    return max(flops, _FLOPS_PER_WEIGHT_BYTE * _FLOAT_BYTES * weights)


def _moved_bytes(conv: DirectConv, m: int) -> float:
    """Return the bytes that the transforms read and write."""
    n, height, width, inner = conv.data_shape
    outer = conv.out_shape[3]
    tiles = (m + 2) ** 2 * winograd.positions(conv, m)
    return float(_FLOAT_BYTES * (n * height * width * (inner + outer) + tiles * (inner + outer)))


def _with_constant_weights(module: tvm.IRModule, convs: Mapping[str, DirectConv | None]) -> set[str]:
    """Return the names of the convolutions whose weights are constants in every call."""
    calls: Counter[str] = Counter()
    constant: Counter[str] = Counter()
    for name, args in all_kernel_calls(module):
        conv = convs.get(name)
        if conv is not None:
            calls[name] += 1
            constant[name] += isinstance(args[conv.weights], tvm.ir.GenericConst)
    return {name for name, count in calls.items() if constant[name] == count}


def _is_call_tir(value: Any) -> bool:
    return operator_name(value) == "relax.call_tir" and isinstance(value.args[0], tvm.ir.GlobalVar)


@relax.expr_functor.mutator
class _AlternativeInserter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, chosen: Mapping[str, Alternative]) -> None:
        super().__init__(module)
        self._chosen = chosen
        self._kernels: dict[str, tuple[Any, Any, Any]] = {}  # by the fused kernel's name
        self._weights: dict[tuple[int, int], Any] = {}  # by the address of the weights, and the tile size

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        alternative = self._chosen.get(str(call.args[0].name_hint)) if _is_call_tir(call) else None
        return call if alternative is None else self._calls_of(alternative, call)

    def _calls_of(self, alternative: Alternative, call: Any) -> Any:
        func = (
            alternative.stored.plain
            if alternative.stored is not None
            else self.builder_.get()[alternative.instead_of]
        )
        first, product, last = self._kernels_of(alternative)
        arguments = kernel_arguments(call)
        kept = winograd.kept_arguments(func, alternative.conv)[:-1]
        tiles = self._emit(first, next(iter(alternative.fixed.values())), [arguments[alternative.conv.data]])
        weights = self._transformed(arguments, alternative)
        results = self._emit(product, alternative.tuned.module["main"], [tiles, weights])
        return relax.call_tir(last, [results, *(arguments[i] for i in kept)], out_ty=call.ty_args[0])

    def _emit(self, kernel: Any, func: tirx.PrimFunc, args: list[Any]) -> Any:
        shape = [int(dim) for dim in func.params[-1].ty.shape]
        return self.builder_.emit(relax.call_tir(kernel, args, out_ty=relax.TensorType(shape, "float32")))

    def _kernels_of(self, alternative: Alternative) -> tuple[Any, Any, Any]:
        if alternative.instead_of not in self._kernels:
            product = alternative.tuned.module["main"].without_attr("global_symbol")
            first, last = (self.builder_.add_func(func, name) for name, func in alternative.fixed.items())
            self._kernels[alternative.instead_of] = (
                first,
                self.builder_.add_func(product, alternative.tuned.name),
                last,
            )
        return self._kernels[alternative.instead_of]

    def _transformed(self, arguments: Sequence[Any], alternative: Alternative) -> Any:
        weights = arguments[alternative.conv.weights]
        key = (weights.__chandle__(), alternative.m)
        if key not in self._weights:
            plain = (
                alternative.stored.widened(arguments, alternative.conv.weights)
                if alternative.stored is not None
                else weights.value.numpy()
            )
            self._weights[key] = relax.const(winograd.transform_weights(plain, alternative.m))
        return self._weights[key]
