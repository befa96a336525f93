"""Extrema and rounding for CPUs that are not x86, whose instructions TVM and LLVM miss.

TVM writes a maximum as a comparison and a choice. x86 has an instruction of just that meaning. 64-bit Arm has one that keeps each NaN, which
LLVM takes only if an operand is a constant: the bounds of a clipped activation are the kernel's arguments, and both operands of a pooling vary.

32-bit Arm before ARMv8 and RISC-V have no instruction that rounds to a float, so LLVM calls the C library for each element; RISC-V's way by
integers LLVM knows for `floor` and `ceil` alone. Adding and subtracting 2^23 rounds as well: from there on float32 has whole numbers alone.
TVM generates code for an expression as often as it is used, so this is a function in LLVM's language, which is inlined.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target.codegen import llvm_lookup_intrinsic_id

from tunefarm_tuning.tvm.base.tir import nodes_of, with_llvm_code

_ARM64 = ("aarch64", "arm64")
_ARM32, _RISCV = "arm", "riscv"
_ROUNDING, _FLOAT16 = "fp-armv8", "fullfp16"
"""LLVM's names of the features of 32-bit Arm that rounds by an instruction, and of 64-bit Arm that computes in float16."""
_FLOATS = ("float32", "float16")
_EXTREMA = {tirx.Max: "llvm.maximum", tirx.Min: "llvm.minimum"}
_BYTES = ("int8", "uint8")
_CALL = "tirx.call_llvm_pure_intrin"
_NEAREST = "nearbyint"
_ROUNDS = (_NEAREST, "floor", "ceil")
_BEYOND = {"floor": ("ogt", "fsub"), "ceil": ("olt", "fadd")}
"""When the nearest whole number is on the wrong side of a number, and the step from there."""


def for_other_cpus(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel, all of whose functions are lowered, with the best code for the extrema and roundings of its CPU.

    An extremum on 64-bit Arm is NaN if an operand is. Roundings give the C library's results, signs of zeros included.
    """
    target = (func.attrs or {}).get("target")
    if target is None or str(target.kind.name) != "llvm":
        return func
    machine = str(target.attrs.get("mtriple", ""))
    if machine.startswith(_ARM64):
        extremum = partial(_extremum, floats=_FLOATS if _has(target, _FLOAT16) else _FLOATS[:1])
        changes: dict[Any, Callable[[Any], Any]] = {
            **dict.fromkeys(_EXTREMA, extremum),
            tirx.Cast: _through_bytes,
        }
        return _changed(
            func, [(kind, change) for kind, change in changes.items() if nodes_of(func.body, kind)]
        )
    if machine.startswith(_RISCV):
        return _with_roundings(func, (_NEAREST,))
    if machine.startswith(_ARM32) and not _has(target, _ROUNDING):
        return _with_roundings(func, _ROUNDS)
    return func


def _has(target: Any, feature: str) -> bool:
    features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")(target)
    return feature in map(str, features)


def _changed(func: tirx.PrimFunc, changes: list[tuple[Any, Callable[[Any], Any]]]) -> tirx.PrimFunc:
    body = tvm_ffi.structural_map(func.body, changes) if changes else func.body
    return func if body.same_as(func.body) else func.with_body(body)


def _extremum(node: Any, floats: Collection[str]) -> Any:
    dtype = tvm.DataType(str(node.expr_ty().dtype))
    if str(dtype.with_lanes(1)) not in floats or _is_constant(node.a) or _is_constant(node.b):
        return node
    return tirx.call_llvm_pure_intrin(str(dtype), _EXTREMA[type(node)], node.a, node.b)


def _through_bytes(cast: Any) -> Any:
    """Return a float that was cast to a byte and back by way of 32 bits, of which the low eight count, as before.

    LLVM takes a vector of such bytes apart and puts it together.
    """
    narrow = cast.value
    if not isinstance(narrow, tirx.Cast):
        return cast
    wide, byte, given = (tvm.DataType(str(each.expr_ty().dtype)) for each in (cast, narrow, narrow.value))
    name = str(byte.with_lanes(1))
    if wide.lanes < 2 or wide != given or wide.with_lanes(1) != "float32" or name not in _BYTES:
        return cast
    integer = tirx.Cast(f"int32x{wide.lanes}", narrow.value)
    if name == "int8":
        others = tirx.const(24, f"int32x{wide.lanes}")
        return tirx.Cast(str(wide), tirx.shift_right(tirx.shift_left(integer, others), others))
    return tirx.Cast(str(wide), tirx.bitwise_and(integer, tirx.const(255, f"int32x{wide.lanes}")))


def _is_constant(value: Any) -> bool:
    return isinstance(value.value if isinstance(value, tirx.Broadcast) else value, tirx.FloatImm)


def _with_roundings(func: tirx.PrimFunc, names: Collection[str]) -> tirx.PrimFunc:
    codes: dict[str, str] = {}

    def rounding(call: Any) -> Any:
        name = _rounding_name(call)
        dtype = tvm.DataType(str(call.expr_ty().dtype)) if name in names else None
        if dtype is None or dtype.with_lanes(1) != "float32":
            return call
        function = f"tunefarm_{name}_x{dtype.lanes}"
        codes[function] = _rounding_code(function, name, dtype.lanes)
        return tirx.call_pure_extern(str(dtype), function, call.args[-1])

    func = _changed(func, [(tvm.ir.Call, rounding)])
    for function in sorted(codes):
        func = with_llvm_code(func, codes[function])
    return func


def _rounding_name(call: Any) -> str:
    if getattr(call.op, "name", "") != _CALL:
        return ""
    return _names().get(int(call.args[0]), "")


@cache
def _names() -> dict[int, str]:
    return {llvm_lookup_intrinsic_id(f"llvm.{name}"): name for name in _ROUNDS}


def _rounding_code(function: str, name: str, lanes: int) -> str:
    """Return the code of a function that rounds: to the nearest, ties to even, and one step on if that is beyond."""
    floats = f"<{lanes} x float>" if lanes > 1 else "float"
    bits = f"<{lanes} x i1>" if lanes > 1 else "i1"
    all_lanes = "splat (float {})".format if lanes > 1 else "{}".format
    suffix = f"v{lanes}f32" if lanes > 1 else "f32"
    step = ""
    if name in _BEYOND:
        comparison, operation = _BEYOND[name]
        step = f"""
  %is.beyond = fcmp {comparison} {floats} %near, %x
  %stepped = {operation} {floats} %near, {all_lanes("1.0")}
  %chosen = select {bits} %is.beyond, {floats} %stepped, {floats} %near"""
    return f"""
declare {floats} @llvm.fabs.{suffix}({floats})
declare {floats} @llvm.copysign.{suffix}({floats}, {floats})

define linkonce_odr hidden {floats} @{function}({floats} %x) alwaysinline nounwind willreturn memory(none) {{
  %shift = call {floats} @llvm.copysign.{suffix}({floats} {all_lanes("8388608.0")}, {floats} %x)
  %sum = fadd {floats} %x, %shift
  %near = fsub {floats} %sum, %shift{step}
  %rounded = call {floats} @llvm.copysign.{suffix}({floats} {"%chosen" if step else "%near"}, {floats} %x)
  %size = call {floats} @llvm.fabs.{suffix}({floats} %x)
  %is.small = fcmp olt {floats} %size, {all_lanes("8388608.0")}
  %result = select {bits} %is.small, {floats} %rounded, {floats} %x
  ret {floats} %result
}}
"""
