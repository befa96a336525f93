"""Alternative algorithms for the convolutions of a prepared network: find promising ones, and put chosen ones in.

An alternative replaces one fused kernel, and is named by its workload key. The network around the kernel stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.relax_graph import entry_names, operator_name, rewrite_main
from tunefarm_tuning.tvm.base.target import pipeline_name
from tunefarm_tuning.tvm.kernels import winograd
from tunefarm_tuning.tvm.kernels.direct_conv import DirectConv, match_direct_conv
from tunefarm_tuning.tvm.kernels.dot_products import BFLOAT16, unpacked
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
        algorithm: ``"winograd-4"``, ``"winograd-2"``, ``"winograd-2-bfloat16"`` or the name of a library.
        tuned: Its kernel that is a tuning task; of a library's, the kernel that calls it.
        direct_flops: Operations of a call of the fused kernel.
        fixed: Its other kernels, by name; they are scheduled already.
        overhead: The estimated work of the fixed kernels, relative to that of the tuned kernel.
        library: The library that computes it; empty for kernels of ours.
    """

    instead_of: str
    workload_key: str
    algorithm: str
    tuned: Kernel
    direct_flops: float
    fixed: Mapping[str, tirx.PrimFunc] = field(default_factory=dict)
    overhead: float = 0.0
    library: str = ""

    def calls(self, inserter: AlternativeInserter, call: Any) -> Any:
        """Emit calls of its kernels in place of a call of the fused kernel, except the last, which is returned."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradAlternative(Alternative):
    """Winograd's algorithm for a 3x3 convolution; where the direct kernel computes in bfloat16, in either.

    Attributes:
        func: The fused kernel, with float32 weights.
        conv: The convolution that it begins with.
        m: A tile has m x m results.
        lanes: The sums of the instruction for bfloat16; 0 for float32.
        stored: The fused kernel, if its weights are stored in fewer bytes. The transformed weights of a product of float32 are float32:
            rounding them would cost several times the accuracy.
    """

    func: tirx.PrimFunc
    conv: DirectConv
    m: int
    lanes: int = 0
    stored: StoredKernel | None = None

    def calls(self, inserter: AlternativeInserter, call: Any) -> Any:
        """Emit the transform of the input and the product; return the call of the transform of the output."""
        (first, first_func), (last, _) = (
            (inserter.kernel(name, func), func) for name, func in self.fixed.items()
        )
        product_func = self.tuned.module["main"].without_attr("global_symbol")
        product = inserter.kernel(self.tuned.name, product_func)
        arguments = kernel_arguments(call)
        kept = winograd.kept_arguments(self.func, self.conv)[:-1]
        tiles = _emit(inserter, first, first_func, [arguments[self.conv.data]])
        weights = inserter.constant(
            arguments[self.conv.weights], (self.m, self.lanes), partial(self._transformed, arguments)
        )
        results = _emit(inserter, product, product_func, [tiles, weights])
        return relax.call_tir(last, [results, *(arguments[i] for i in kept)], out_ty=call.ty_args[0])

    def _transformed(self, arguments: Sequence[Any]) -> Any:
        if self.stored is not None:
            plain = self.stored.widened(arguments, self.conv.weights)
        else:
            plain = arguments[self.conv.weights].value.numpy()
        if self.conv.kind is not None:
            depth, results = self.conv.data_shape[3], self.conv.out_shape[3]
            plain = unpacked(plain, depth, results, self.conv.kind.products).astype(np.float32)
        return winograd.transform_weights(plain, self.m, self.lanes)


def find_alternatives(
    module: tvm.IRModule,
    target: Target,
    stored: Mapping[str, StoredKernel] | None = None,
    weights: Sequence[int] = (),
    kernels: Sequence[Kernel] | None = None,
) -> list[Alternative]:
    """Return the alternatives of a prepared module that are worth a trial, in order of first use; none for a GPU.

    Args:
        module: The module.
        target: The target.
        stored: The kernels whose weights are stored in fewer bytes.
        weights: As for `primfunc_workloads`.
        kernels: What that returned, if it was called before.
    """
    stored = stored or {}
    if pipeline_name(target) != "cpu":
        return []
    every = primfunc_workloads(module, weights) if kernels is None else kernels
    tunable = {kernel.name: kernel for kernel in every if kernel.not_tunable is None}
    plain = {name: stored[name].plain if name in stored else module[name] for name in tunable}
    convs = {name: match_direct_conv(func) for name, func in plain.items()}
    weights_of = {name: conv.weights for name, conv in convs.items() if conv is not None}
    constant = with_constant_weights(module, weights_of)
    alternatives: list[Alternative] = []
    for name, kernel in tunable.items():
        conv = convs[name]
        if conv is None or name not in constant:
            continue
        if min(conv.data_shape[3], conv.out_shape[3]) < _MIN_CHANNELS:
            continue
        alternatives += _worth_trying(plain[name], kernel, conv, stored.get(name))
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
    rewritten = rewrite_main(module, AlternativeInserter(module, chosen))
    # The replaced kernels have no callers any more.
    return relax.transform.DeadCodeElimination(entry_names(rewritten))(rewritten)


def _worth_trying(
    func: tirx.PrimFunc, kernel: Kernel, conv: DirectConv, stored: StoredKernel | None
) -> list[Alternative]:
    direct = _effort(kernel_flops(kernel.module), 9 * conv.data_shape[3] * conv.out_shape[3])
    if conv.kind is not None:
        direct /= conv.kind.products  # at once
    forms = [(m, 0) for m in winograd.TILES]
    if conv.kind is BFLOAT16 and conv.data_shape[3] % BFLOAT16.products == 0:
        forms.append((min(winograd.TILES), conv.lanes))
    efforts = {form: _winograd_effort(conv, *form) for form in forms}
    most = min(_MAX_EFFORT * direct, _MAX_EFFORT_RATIO * min(efforts.values()))
    by_effort = sorted((form for form in forms if efforts[form] <= most), key=lambda form: efforts[form])
    alternatives = (winograd_alternative(func, kernel, conv, *form, stored) for form in by_effort)
    return [alternative for alternative in alternatives if alternative is not None]


def winograd_alternative(
    func: tirx.PrimFunc,
    kernel: Kernel,
    conv: DirectConv,
    m: int,
    lanes: int = 0,
    stored: StoredKernel | None = None,
) -> Alternative | None:
    """Return Winograd's algorithm for a fused kernel; None if the steps behind the convolution do not allow it.

    Its product is of bfloat16 by an instruction of `lanes` sums; of float32 if that is 0.
    """
    output = winograd.output_transform(func, conv, m, lanes)
    if output is None:
        return None
    stem = f"{kernel.name}_winograd{m}{'_bfloat16' if lanes else ''}"
    tuned = as_kernel(f"{stem}_matmul", winograd.matmul(conv, m, lanes), kernel.weight)
    return WinogradAlternative(
        func=func,
        stored=stored,
        instead_of=kernel.name,
        workload_key=kernel.workload_key,
        algorithm=f"winograd-{m}{'-bfloat16' if lanes else ''}",
        tuned=tuned,
        fixed={f"{stem}_input": winograd.input_transform(conv, m, lanes), f"{stem}_output": output},
        overhead=_FLOPS_PER_BYTE * _moved_bytes(conv, m, lanes) / kernel_flops(tuned.module),
        conv=conv,
        m=m,
        lanes=lanes,
        direct_flops=kernel_flops(kernel.module),
    )


def _winograd_effort(conv: DirectConv, m: int, lanes: int) -> float:
    weights = (m + 2) ** 2 * conv.data_shape[3] * conv.out_shape[3]
    product = _effort(2.0 * weights * winograd.positions(conv, m), weights)
    if lanes:
        product /= BFLOAT16.products
    return product + _FLOPS_PER_BYTE * _moved_bytes(conv, m, lanes)


def _effort(flops: float, weights: int) -> float:
    """Return the effort of a kernel in floating-point operations: its arithmetic, or the reading of its weights if that is more."""
    return max(flops, _FLOPS_PER_WEIGHT_BYTE * _FLOAT_BYTES * weights)


def _moved_bytes(conv: DirectConv, m: int, lanes: int) -> float:
    """Return the bytes that the transforms read and write."""
    n, height, width, inner = conv.data_shape
    outer = conv.out_shape[3]
    tiles = (m + 2) ** 2 * winograd.positions(conv, m)
    multiplied = inner / BFLOAT16.products if lanes else inner
    return float(_FLOAT_BYTES * (n * height * width * (inner + outer) + tiles * (multiplied + outer)))


def with_constant_weights(module: tvm.IRModule, weights: Mapping[str, int]) -> set[str]:
    """Return the names of the kernels whose weights are constants in every call; `weights` has the argument's index by name."""
    calls: Counter[str] = Counter()
    constant: Counter[str] = Counter()
    for name, args in all_kernel_calls(module):
        if name in weights:
            calls[name] += 1
            constant[name] += isinstance(args[weights[name]], tvm.ir.GenericConst)
    return {name for name, count in calls.items() if constant[name] == count}


def _emit(inserter: AlternativeInserter, kernel: Any, func: tirx.PrimFunc, args: list[Any]) -> Any:
    result = func.params[-1].ty
    shape = [int(dim) for dim in result.shape]
    call = relax.call_tir(kernel, args, out_ty=relax.TensorType(shape, str(result.dtype.dtype)))
    return inserter.builder_.emit(call)


def _is_call_tir(value: Any) -> bool:
    return operator_name(value) == "relax.call_tir" and isinstance(value.args[0], tvm.ir.GlobalVar)


@relax.expr_functor.mutator
class AlternativeInserter(relax.PyExprMutator):  # type: ignore[misc]
    """Puts alternatives in place of calls; `chosen` has them by the fused kernel's name."""

    def __init__(self, module: tvm.IRModule, chosen: Mapping[str, Alternative]) -> None:
        super().__init__(module)
        self._chosen = chosen
        self._kernels: dict[str, Any] = {}
        # By the address of the weights, which are kept alive here, and what they become.
        self._constants: dict[tuple[int, Any], tuple[Any, Any]] = {}

    def visit_call_(self, call: Any) -> Any:
        """Replace a call of a fused kernel that an alternative was chosen for."""
        call = super().visit_call_(call)
        alternative = self._chosen.get(str(call.args[0].name_hint)) if _is_call_tir(call) else None
        return call if alternative is None else alternative.calls(self, call)

    def kernel(self, name: str, func: tirx.PrimFunc) -> Any:
        """Return a kernel of this name, which is added to the module at the first call."""
        if name not in self._kernels:
            self._kernels[name] = self.builder_.add_func(func, name)
        return self._kernels[name]

    def constant(self, weights: Any, kind: Any, make: Callable[[], Any]) -> Any:
        """Return what weights become in an alternative, made once for each `kind` of it."""
        key = (weights.__chandle__(), kind)
        if key not in self._constants:
            value = make()
            # Without its type, 64 bits would become 32.
            self._constants[key] = (weights, relax.const(value, str(value.dtype)))
        return self._constants[key][1]
