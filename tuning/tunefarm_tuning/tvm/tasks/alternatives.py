"""Other algorithms for the convolutions of a prepared network: which are worth a trial, and putting them in.

An alternative takes the place of one fused kernel, whose workload key names it: the network around it stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax, tirx

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import pipeline_name
from tunefarm_tuning.tvm.kernels import winograd
from tunefarm_tuning.tvm.kernels.direct_conv import DirectConv, match_direct_conv
from tunefarm_tuning.tvm.kernels.weight_packing import kernel_arguments, kernel_calls
from tunefarm_tuning.tvm.tasks.extract import Kernel, as_kernel, as_workload, kernel_flops, primfunc_workloads
from tunefarm_tuning.tvm.transform.weights.storage import StoredKernel
from tunefarm_tuning.workload.task import Alternative as AlternativeOf
from tunefarm_tuning.workload.task import TuningTask

_FLOPS_PER_BYTE = 6.0  # what a core computes while it moves a byte between kernels, roughly
_FLOPS_PER_WEIGHT_BYTE = 10.0  # weights come from further away: a network's do not fit into a cache
_FLOAT_BYTES = 4
_MAX_EFFORT = 0.85  # of the direct kernel's: what seems to win less than that is not tried
_NEARLY = 1.3  # as good as the best by this estimate: tried too
_LEAST_CHANNELS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another algorithm for one fused kernel.

    Attributes:
        instead_of: The fused kernel's name in the module.
        workload_key: The fused kernel's.
        algorithm: ``"winograd-4"`` or ``"winograd-2"``.
        tuned: The kernel of it that is a tuning task.
        fixed: Its other kernels, by name; they come scheduled.
        overhead: The work of those, relative to that of the tuned kernel (an estimate).
        conv: The convolution that the fused kernel begins with.
        m: A tile's results are m x m.
        stored: Of a fused kernel whose weights are stored in fewer bytes. This one's are float32, made of what is stored: rounding
            them would cost several times the digits.
    """

    instead_of: str
    workload_key: str
    algorithm: str
    tuned: Kernel
    fixed: Mapping[str, tirx.PrimFunc]
    overhead: float
    conv: DirectConv
    m: int
    stored: StoredKernel | None = None


def find_alternatives(
    module: tvm.IRModule, target: Target, stored: Mapping[str, StoredKernel] | None = None
) -> list[Alternative]:
    """Return the alternatives in a prepared module that are worth a trial, in order of first use; none for a GPU.

    Args:
        module: The module.
        target: What it was prepared for.
        stored: Those of its kernels whose weights are stored in fewer bytes.
    """
    stored = stored or {}
    if pipeline_name(target) != "cpu":
        return []
    kernels = {kernel.name: kernel for kernel in primfunc_workloads(module) if kernel.not_tunable is None}
    plain = {name: stored[name].plain if name in stored else module[name] for name in kernels}
    convs = {name: match_direct_conv(func) for name, func in plain.items()}
    constant = _with_constant_weights(module, convs)
    found: list[Alternative] = []
    for name, kernel in kernels.items():
        conv = convs[name]
        if conv is None or name not in constant or not _is_large_enough(conv):
            continue
        found += [replace(one, stored=stored.get(name)) for one in _worth_trying(plain[name], kernel, conv)]
    return found


def alternative_tasks(
    alternatives: Sequence[Alternative], target: Target, *, besides: Collection[str] = ()
) -> list[TuningTask]:
    """Return the tuning tasks of alternatives; several kernels may have one in common.

    Args:
        alternatives: From `find_alternatives`.
        target: Of the tasks.
        besides: Workload keys of tasks that there are anyway.
    """
    groups: dict[str, list[Alternative]] = {}
    for one in alternatives:
        if one.tuned.workload_key not in besides:
            groups.setdefault(one.tuned.workload_key, []).append(one)
    return [
        TuningTask(
            workload=as_workload(group[0].tuned),
            target=target,
            weight=sum(one.tuned.weight for one in group),
            alternative=AlternativeOf(
                algorithm=group[0].algorithm,
                # Kernels that compute the same may have several names in a network.
                instead_of=tuple(dict.fromkeys(one.workload_key for one in group)),
                overhead=max(one.overhead for one in group),
            ),
        )
        for group in groups.values()
    ]


def put_alternatives_in(
    module: tvm.IRModule, alternatives: Sequence[Alternative], choices: Mapping[str, str]
) -> tvm.IRModule:
    """Return a prepared module with algorithms of choice.

    Args:
        module: The module.
        alternatives: What `find_alternatives` found in it.
        choices: Algorithm by workload key of the fused kernel; what is not named stays direct.
    """
    chosen = {one.instead_of: one for one in alternatives if choices.get(one.workload_key) == one.algorithm}
    if not chosen:
        return module
    return _Rewriter(module, chosen).rewritten()


def _worth_trying(func: tirx.PrimFunc, kernel: Kernel, conv: DirectConv) -> list[Alternative]:
    direct = _effort(kernel_flops(kernel.module), 9 * conv.data_shape[3] * conv.out_shape[3])
    efforts = {m: _winograd_effort(conv, m) for m in winograd.TILES}
    least = min(efforts.values())
    tried = [m for m in efforts if efforts[m] <= _MAX_EFFORT * direct and efforts[m] <= _NEARLY * least]
    made = (winograd_alternative(func, kernel, conv, m) for m in sorted(tried, key=lambda m: efforts[m]))
    return [one for one in made if one is not None]


def winograd_alternative(func: tirx.PrimFunc, kernel: Kernel, conv: DirectConv, m: int) -> Alternative | None:
    """Return Winograd's algorithm for a fused kernel; None where what follows the convolution does not allow it."""
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
    )


def _winograd_effort(conv: DirectConv, m: int) -> float:
    weights = (m + 2) ** 2 * conv.data_shape[3] * conv.out_shape[3]
    flops = 2.0 * weights * winograd.positions(conv, m)
    return _effort(flops, weights) + _FLOPS_PER_BYTE * _moved_bytes(conv, m)


def _effort(flops: float, weights: int) -> float:
    """Return what a kernel takes, in floating-point operations, if either arithmetic or its weights hold it up."""
    return max(flops, _FLOPS_PER_WEIGHT_BYTE * _FLOAT_BYTES * weights)


def _moved_bytes(conv: DirectConv, m: int) -> float:
    """Return the bytes that the transforms read and write."""
    n, height, width, inner = conv.data_shape
    outer = conv.out_shape[3]
    tiles = (m + 2) ** 2 * winograd.positions(conv, m)
    return float(_FLOAT_BYTES * (n * height * width * (inner + outer) + tiles * (inner + outer)))


def _is_large_enough(conv: DirectConv) -> bool:
    return min(conv.data_shape[3], conv.out_shape[3]) >= _LEAST_CHANNELS


def _with_constant_weights(module: tvm.IRModule, convs: Mapping[str, DirectConv | None]) -> set[str]:
    """Return the convolutions, by name, all calls of which have their weights as constants."""
    calls: Counter[str] = Counter()
    constant: Counter[str] = Counter()
    for name, args in kernel_calls(module["main"].body):
        conv = convs.get(name)
        if conv is not None:
            calls[name] += 1
            constant[name] += isinstance(args[conv.weights], tvm.ir.GenericConst)
    return {name for name, count in calls.items() if constant[name] == count}


def _is_call_tir(value: Any) -> bool:
    return (
        isinstance(value, tvm.ir.Call)
        and isinstance(value.op, tvm.ir.Op)
        and value.op.name == "relax.call_tir"
        and isinstance(value.args[0], tvm.ir.GlobalVar)
    )


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, chosen: Mapping[str, Alternative]) -> None:
        super().__init__(module)
        self._chosen = chosen
        self._made: dict[str, tuple[Any, Any, Any]] = {}
        self._weights: dict[tuple[int, int], Any] = {}

    def rewritten(self) -> tvm.IRModule:
        """Return the module with the chosen alternatives in, and without the kernels that nobody calls any more."""
        module = self.builder_.get()
        self.builder_.update_func(module.get_global_var("main"), self.visit_expr(module["main"]))
        return relax.transform.DeadCodeElimination(["main"])(self.builder_.get())

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        one = self._chosen.get(str(call.args[0].name_hint)) if _is_call_tir(call) else None
        return call if one is None else self._calls_of(one, call)

    def _calls_of(self, one: Alternative, call: Any) -> Any:
        func = one.stored.plain if one.stored is not None else self.builder_.get()[one.instead_of]
        first, product, last = self._kernels(one)
        given = kernel_arguments(call)
        kept = winograd.kept_arguments(func, one.conv)[:-1]
        tiles = self._emit(first, next(iter(one.fixed.values())), [given[one.conv.data]])
        weights = self._transformed(given, one)
        results = self._emit(product, one.tuned.module["main"], [tiles, weights])
        return relax.call_tir(last, [results, *(given[i] for i in kept)], out_ty=call.ty_args[0])

    def _emit(self, kernel: Any, func: tirx.PrimFunc, args: list[Any]) -> Any:
        shape = [int(dim) for dim in func.params[-1].ty.shape]
        return self.builder_.emit(relax.call_tir(kernel, args, out_ty=relax.TensorType(shape, "float32")))

    def _kernels(self, one: Alternative) -> tuple[Any, Any, Any]:
        if one.instead_of not in self._made:
            product = one.tuned.module["main"].without_attr("global_symbol")
            first, last = (self.builder_.add_func(func, name) for name, func in one.fixed.items())
            self._made[one.instead_of] = (first, self.builder_.add_func(product, one.tuned.name), last)
        return self._made[one.instead_of]

    def _transformed(self, given: Sequence[Any], one: Alternative) -> Any:
        weights = given[one.conv.weights]
        key = (weights.__chandle__(), one.m)
        if key not in self._weights:
            plain = (
                one.stored.widened(given, one.conv.weights)
                if one.stored is not None
                else weights.value.numpy()
            )
            self._weights[key] = relax.const(winograd.transform_weights(plain, one.m))
        return self._weights[key]
