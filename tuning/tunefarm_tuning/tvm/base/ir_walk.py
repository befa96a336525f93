"""Walking TVM's IR by the reflection of its objects (TVM 0.27 exposes no visitor for TIR to Python)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import tvm
import tvm_ffi


def walk(root: tvm_ffi.Object, *, leaving_out: Collection[str] = ()) -> Iterator[tvm_ffi.Object]:
    """Yield every object reachable from `root`, each once, parents before children.

    Args:
        root: Where it starts.
        leaving_out: Names of fields that are not entered.
    """
    seen: dict[
        int, tvm_ffi.Object
    ] = {}  # the values keep the objects alive, so that no address is used twice
    stack = [root]  # of our own: expressions nest deeper than Python's allows
    while stack:
        value = stack.pop()
        if value.__chandle__() in seen:
            continue
        seen[value.__chandle__()] = value
        yield value
        stack.extend(
            part for name, part in reversed(parts(value)) if name not in leaving_out and is_node(part)
        )


def is_node(value: Any) -> bool:
    """Whether a value has parts of its own; the rest are numbers, strings, tensors and nothing."""
    return isinstance(value, tvm_ffi.Object) and not isinstance(value, tvm.runtime.Tensor)


def parts(value: tvm_ffi.Object) -> list[tuple[str, Any]]:
    """Return an object's fields, or a container's items, with their labels, in a fixed order."""
    if isinstance(value, tvm_ffi.Array):
        return [("", item) for item in value]
    if isinstance(value, tvm_ffi.Map):
        # In TIR every map has strings for keys; the order in which TVM holds them means nothing.
        return [(key, value[key]) for key in sorted(value)]
    if isinstance(value, tvm.ir.Op):
        return [("name", value.name)]  # the rest is documentation
    kind: Any = type(value)
    return [(name, getter(value)) for name, getter in _fields(kind)]


def type_key(value: tvm_ffi.Object) -> str:
    """Return TVM's name of an object's type (``"tirx.For"``)."""
    return str(type(value).__tvm_ffi_type_info__.type_key)


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names and getters of a type's fields, its bases' included; source locations left out."""
    found = []
    info = kind.__tvm_ffi_type_info__
    while info is not None:
        found += [(field.name, field.getter) for field in info.fields or () if field.name != "span"]
        info = info.parent_type_info
    return tuple(found)
