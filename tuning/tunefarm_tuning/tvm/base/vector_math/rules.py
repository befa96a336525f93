"""Compute functions by these formulas, and all that rounds in vector instructions.

LLVM has no vector form of them: it takes a vector apart and calls the C library for each element, 2 to 8 ns at a time. A GELU
behind a small matmul then takes longer than the matmul. These rules replace them in every kernel for a CPU, when its
loops are lowered. Operators that TVM builds on ``exp`` (sigmoid, softmax) gain as well. Its ``tanh``, also built on ``exp``, loses digits
near zero.

TVM takes ``nearbyint``, ``rsqrt`` and ``erf`` for functions of scalars, and makes a plain loop of a vector that has one. LLVM finds most of
these loops. Where a tile's are unrolled, it found the first: the activations of quantised networks were written byte by byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tunefarm_tuning.tvm.base.tir import nodes_of, walk
from tunefarm_tuning.tvm.base.vector_math import formulas
from tunefarm_tuning.tvm.base.vector_math.formulas import dtype_of, like, with_names
from tunefarm_tuning.tvm.base.vector_math.named_arguments import with_named_arguments

_LEVEL = 99
"""Priority of our rules, above TVM's."""
_MOST_CALLS = 32
_ERF, _TANH = "tirx.erf", "tirx.tanh"
_VECTORIZABLE = ("tirx.nearbyint", "tirx.rsqrt", _ERF)


def register() -> None:
    """Compute and vectorise functions so in every kernel that this process builds for LLVM from now on."""
    for name in _VECTORIZABLE:
        tvm.ir.Op.get(name).set_attr("TVectorizable", True)
    for name, rule in (
        ("tirx.exp", partial(_rule, formulas.exp)),
        (_ERF, partial(_rule, formulas.erf)),
        (_TANH, _tanh_rule),
    ):
        op = tvm.ir.Op.get(name)
        of_tvm = op.get_attr("llvm.FLowerIntrinsic") or op.get_attr("default.FLowerIntrinsic")
        tirx.op.register_intrin_lowering(name, target="llvm", f=rule(of_tvm), level=_LEVEL)


def _rule(approximate: Callable[[Any], Any], of_tvm: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def lower(call: Any) -> Any:
        approximated = _in_float32(approximate, call)
        if approximated is not None:
            return approximated
        value = call.args[0]
        _, _, lanes = dtype_of(value).partition("x")
        if lanes and call.op.name == _ERF:  # the C library has no function of vectors
            elements = [tirx.Shuffle([value], [number]) for number in range(int(lanes))]
            return tirx.Shuffle([of_tvm(tirx.erf(each)) for each in elements], list(range(int(lanes))))
        return of_tvm(call)

    return lower


def _tanh_rule(of_tvm: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def lower(call: Any) -> Any:
        approximated = _in_float32(partial(with_names, formulas.tanh), call)
        return (
            with_names(partial(formulas.tanh64, of_tvm=of_tvm(call)), call.args[0])
            if approximated is None
            else approximated
        )

    return lower


def _in_float32(approximate: Callable[..., Any], call: Any) -> Any | None:
    """Return an approximation of a call, computed in float32; None in float64, or if it is none of floats."""
    values = list(call.args)
    dtype = dtype_of(values[0])
    element, _, lanes = dtype.partition("x")
    if element == "float32":
        return approximate(*values)
    if element in ("float16", "bfloat16"):
        wide = f"float32x{lanes}" if lanes else "float32"
        return tirx.Cast(dtype, approximate(*(tirx.Cast(wide, value) for value in values)))
    return None


def with_functions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a lowered kernel whose functions have no argument that has a function, with formulas of logarithms, powers, sines and cosines.

    The C library computes these in kernels with very many calls, and where an argument cannot be named.
    """
    calls = {_name_of(call) for call in nodes_of(func.body, tvm.ir.Call)}
    if not calls & _FUNCTIONS:
        return func  # most kernels: TVM finds that sooner than `walk`
    func = with_named_arguments(func, _is_function)
    if not calls & _ALONE.keys() or sum(_name_of(node) in _ALONE for node in walk(func.body)) > _MOST_CALLS:
        return func

    def without_calls(stmt: Any) -> Any:
        calls = [node for node in walk(stmt.value) if _is_function(node)]
        if any(_is_function(node) for call in calls for arg in call.args for node in walk(arg)):
            return stmt

        def of(call: Any) -> Any:
            approximate = _ALONE.get(_name_of(call))
            if approximate is None:
                return call
            approximated = _in_float32(partial(with_names, approximate), call)
            return call if approximated is None else approximated

        return tvm_ffi.structural_map(stmt, (tvm.ir.Call, of))

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.BufferStore, without_calls)))


def _is_function(node: Any) -> bool:
    return _name_of(node) in _FUNCTIONS


def _name_of(node: Any) -> str:
    return str(node.op.name) if isinstance(node, tvm.ir.Call) and isinstance(node.op, tvm.ir.Op) else ""


_ALONE: Mapping[str, Callable[..., Any]] = {
    "tirx.log": formulas.log,
    "prim.log2": formulas.log2,
    "tirx.log10": lambda named, x: formulas.log(named, x) * like(x, 1 / math.log(10)),
    "tirx.log1p": formulas.log1p,
    "tirx.atanh": formulas.atanh,
    "tirx.pow": formulas.power,
    "tirx.sin": partial(formulas.sine, turns=0),
    "tirx.cos": partial(formulas.sine, turns=1),
}
_FUNCTIONS = frozenset(
    {*_ALONE, "tirx.exp", _ERF}
    | {
        f"tirx.{name}"
        for name in (
            "exp2",
            "exp10",
            "tanh",
            "sigmoid",
            "tan",
            "sinh",
            "cosh",
            "asin",
            "acos",
            "asinh",
            "acosh",
        )
    }
)
