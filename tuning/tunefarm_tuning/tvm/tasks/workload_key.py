"""Workload keys: a hash of a kernel's computation only.

TVM's structural hash differs between versions. This hash reads a PrimFunc field by field, numbers its variables by first
appearance, and leaves names out.
"""

from __future__ import annotations

import hashlib
from typing import Any

import tvm
import tvm_ffi

from tunefarm_tuning.tvm.base.tir import is_node, parts, type_key

_FORMAT = "tunefarm-workload-1"
"""Part of every key: raise it whenever the encoding below changes, so that old keys cannot match by accident."""

_IGNORED = {
    ("ir.Var", "name"),
    ("s_tir.SBlock", "name_hint"),
    ("tirx.PrimFunc", "ty"),  # repeats the parameters in Relax's types
    ("ffi.Map", "global_symbol"),
    ("ffi.Map", "op_pattern"),  # set for the fusion pass and unused afterwards
}


def workload_key(func: tvm.tirx.PrimFunc) -> str:
    """Return the key of a PrimFunc: 32 hexadecimal digits.

    Equal for equal computations in every process, under any names of tensors, loops and blocks;
    different if a shape, dtype, constant, attribute, or the order of arguments differs.
    """
    return hashlib.sha256(f"{_FORMAT}\n{_digest(func)}".encode()).hexdigest()[:32]


def _digest(root: tvm_ffi.Object) -> str:
    """Digest objects bottom-up, each once, so that shared subexpressions cost nothing extra.

    A variable is its number in order of first appearance, which is the same whether equal subtrees are one
    object or copies of each other.
    """
    numbers: dict[int, int] = {}
    digests: dict[int, str] = {}
    # Also keeps the objects alive, so that no address is used twice.
    opened: dict[int, tuple[Any, list[tuple[str, Any]]]] = {}
    stack: list[Any] = [root]  # expressions nest deeper than Python's recursion allows
    while stack:
        value = stack[-1]
        address = value.__chandle__()
        if address in digests:
            stack.pop()
            continue
        kind = type_key(value)
        if address not in opened:
            if kind == "ir.Var":
                numbers[address] = len(numbers)
            hashed_parts = [(label, part) for label, part in parts(value) if (kind, label) not in _IGNORED]
            opened[address] = (value, hashed_parts)
            stack.extend(part for _, part in reversed(hashed_parts) if is_node(part))
            continue
        stack.pop()
        lines = [kind if kind != "ir.Var" else f"{kind} {numbers[address]}"]
        lines += [
            f"{label}={digests[part.__chandle__()] if is_node(part) else _leaf_text(part)}"
            for label, part in opened[address][1]
        ]
        digests[address] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return digests[root.__chandle__()]


def _leaf_text(value: Any) -> str:
    if isinstance(value, float):
        return f"float {value.hex()}"
    if isinstance(value, tvm.runtime.Tensor):
        data = value.numpy()
        return f"tensor {data.dtype} {data.shape} {hashlib.sha256(data.tobytes()).hexdigest()}"
    # The type's name keeps True, 1 and "1" apart; the quotes keep a string's newlines from looking like ours.
    return f"{type(value).__name__} {str(value)!r}"
