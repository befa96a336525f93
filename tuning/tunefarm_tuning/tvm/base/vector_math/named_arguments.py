"""Give names to arguments of functions that have functions themselves.

TVM generates code for an expression as often as it is used, and a formula uses its argument some twenty times: of four functions in one
another, as activations behind activations become in one kernel, it made code for half a minute. Variables do not help: TVM's simplifier
puts their values where they are used. It does not look into a buffer; of one of a vector's size on the stack, LLVM makes a register.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tunefarm_tuning.tvm.base.stack_buffers import on_stack
from tunefarm_tuning.tvm.base.tir import nodes_of

_CHOICE = "prim.if_then_else"


def with_named_arguments(func: tirx.PrimFunc, is_function: Callable[[Any], bool]) -> tirx.PrimFunc:
    """Return a lowered kernel whose stores read from buffers what a function takes of another function.

    What a store chooses by a condition is computed where the condition holds, as an element may not exist where it does not.
    """

    def has_function(value: Any) -> bool:
        return any(map(is_function, nodes_of(value, tvm.ir.Call)))

    def store(stmt: Any) -> Any:
        if nodes_of(stmt.value, tirx.Let):
            return stmt  # an argument may read its variables
        arguments = _Arguments(has_function, is_function)
        value = tvm_ffi.structural_map(stmt.value, (tvm.ir.Call, arguments.without_nested))
        if not arguments.buffers:
            return stmt
        stored = tirx.BufferStore(stmt.buffer, value, stmt.indices)
        return tirx.stmt_seq(*map(on_stack, arguments.buffers), *arguments.needed_by([value]), stored)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.BufferStore, store)))


class _Arguments:
    """The named arguments of a store, in the order in which they are computed."""

    def __init__(self, has_function: Callable[[Any], bool], is_function: Callable[[Any], bool]) -> None:
        self._has_function, self._is_function = has_function, is_function
        self._computed: dict[Any, tuple[Any, list[Any]]] = {}
        """Of each buffer, the statement that fills it, and the values that must be known before."""

    @property
    def buffers(self) -> Iterable[Any]:
        """The buffers of all arguments that have names."""
        return self._computed.keys()

    def without_nested(self, call: Any) -> Any:
        """Return a call whose arguments are without such calls already, with names for what is nested."""
        if self._is_function(call):
            named = [self._named(arg) if self._has_function(arg) else arg for arg in call.args]
            return tvm.ir.Call(call.op, named, ret_ty=call.expr_ty())
        if getattr(call.op, "name", "") == _CHOICE and any(self._loads(branch) for branch in call.args[1:]):
            return self._named_choice(call)
        return call

    def needed_by(self, values: Iterable[Any]) -> list[Any]:
        """Return the statements that fill the buffers that values read, directly or not."""
        needed: set[Any] = set()
        waiting = list(values)
        while waiting:
            for buffer in self._loads(waiting.pop()) - needed:
                needed.add(buffer)
                waiting.extend(self._computed[buffer][1])
        return [stmt for buffer, (stmt, _) in self._computed.items() if buffer in needed]

    def _loads(self, value: Any) -> set[Any]:
        return {load.source for load in nodes_of(value, tvm.ir.TensorLoad)} & self._computed.keys()

    def _named(self, value: Any) -> Any:
        buffer, indices = _buffer_of(value)
        self._computed[buffer] = tirx.BufferStore(buffer, value, indices), [value]
        return tirx.BufferLoad(buffer, indices)

    def _named_choice(self, call: Any) -> Any:
        condition, *branches = call.args
        buffer, indices = _buffer_of(call)
        cases = [
            tirx.stmt_seq(*self.needed_by([branch]), tirx.BufferStore(buffer, branch, indices))
            for branch in branches
        ]
        self._computed[buffer] = tirx.IfThenElse(condition, *cases), [condition]
        return tirx.BufferLoad(buffer, indices)


def _buffer_of(value: Any) -> tuple[Any, list[Any]]:
    """Return a buffer of a value's size, and the indices of all its elements."""
    element, _, lanes = str(value.expr_ty().dtype).partition("x")
    buffer = tirx.decl_buffer([int(lanes or 1)], element, "argument", scope="local")
    return buffer, [tirx.Ramp(0, 1, int(lanes)) if lanes else 0]
