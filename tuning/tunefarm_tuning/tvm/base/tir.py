"""Walk and rebuild TIR; the attributes that we put on PrimFuncs.

TVM 0.27 exposes neither a visitor nor a mutator for TIR to Python: the walk goes by the reflection of its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule


def walk(root: tvm_ffi.Object, *, leaving_out: Collection[str] = ()) -> Iterator[tvm_ffi.Object]:
    """Yield every object reachable from `root`, each once, parents before children; fields named in `leaving_out` are not entered."""
    # The values keep the objects alive, so that no address is used twice.
    yielded: dict[int, tvm_ffi.Object] = {}
    stack = [root]  # expressions nest deeper than Python's recursion allows
    while stack:
        value = stack.pop()
        if (handle := value.__chandle__()) in yielded:
            continue
        yielded[handle] = value
        yield value
        stack.extend(_nodes_in(value, leaving_out))


def _nodes_in(value: tvm_ffi.Object, leaving_out: Collection[str]) -> list[tvm_ffi.Object]:
    """Return an object's parts that are nodes, the last one first."""
    # `isinstance` takes long to deny one of TVM's types: what depends on the type alone is kept.
    return [
        part
        for name, part in reversed(parts(value))
        if name not in leaving_out and _is_node_type(_type_of(part))
    ]


def nodes_of(root: tvm_ffi.Object, kinds: Any) -> list[Any]:
    """Return the objects of a type, or of several, among the values, statements and types of a kernel.

    TVM looks for them, many times as fast as `walk`. Texts of messages are left out, and an object is there as often as it occurs. It
    recurses: values that are nested ten thousand deep are for `walk`.
    """
    nodes: list[Any] = []
    tvm_ffi.structural_walk(root, (kinds, nodes.append))
    return nodes


def is_node(value: Any) -> bool:
    """Return whether a value has parts. Numbers, strings, tensors and None have none."""
    return _is_node_type(_type_of(value))


_type_of: Callable[[Any], Any] = type
# An array's own methods call these through three layers of Python.
_item_of, _size_of = tvm_ffi.get_global_func("ffi.ArrayGetItem"), tvm_ffi.get_global_func("ffi.ArraySize")


@cache
def _is_node_type(kind: Any) -> bool:
    return issubclass(kind, tvm_ffi.Object) and not issubclass(kind, tvm.runtime.Tensor)


def is_number(value: Any, number: int) -> bool:
    """Return whether a value is this integer constant."""
    return isinstance(value, tirx.IntImm) and int(value) == number


def parts(value: tvm_ffi.Object) -> list[tuple[str, Any]]:
    """Return an object's fields, or a container's items, with their labels, in a fixed order."""
    kind: Any = type(value)
    return _parts_of(kind)(value)


@cache
def _parts_of(kind: Any) -> Callable[[Any], list[tuple[str, Any]]]:
    """Return what gives the parts of a type's objects."""
    if issubclass(kind, tvm_ffi.Array):
        return lambda array: [("", _item_of(array, number)) for number in range(_size_of(array))]
    if issubclass(kind, tvm_ffi.Map):
        # In TIR the keys of every map are strings; their order in TVM has no meaning.
        return lambda items: [(key, items[key]) for key in sorted(items)]
    if issubclass(kind, tvm.ir.Op):
        return lambda op: [("name", op.name)]  # the other fields are documentation
    fields = _fields(kind)
    return lambda value: [(name, getter(value)) for name, getter in fields]


def type_key(value: tvm_ffi.Object) -> str:
    """Return TVM's name of an object's type (``"tirx.For"``)."""
    return str(type(value).__tvm_ffi_type_info__.type_key)


def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names and getters of a type's fields, its bases' included; source locations left out."""
    fields = []
    info = kind.__tvm_ffi_type_info__
    while info is not None:
        fields += [(field.name, field.getter) for field in info.fields or () if field.name != "span"]
        info = info.parent_type_info
    return tuple(fields)


def rebuilt(stmt: Any, change: Callable[[Any], Any]) -> Any:
    """Return a statement with `change` applied to each ``For`` and ``SBlockRealize``, the inner ones first."""
    if isinstance(stmt, tirx.For):
        return change(loop_with(stmt, body=rebuilt(stmt.body, change)))
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt([rebuilt(part, change) for part in stmt.seq])
    if isinstance(stmt, SBlockRealize):
        return change(SBlockRealize(stmt.iter_values, stmt.predicate, rebuilt(stmt.block, change)))
    if isinstance(stmt, SBlock):
        return block_with(stmt, body=rebuilt(stmt.body, change))
    return stmt


_LOOP = ("loop_var", "min", "extent", "kind", "body", "thread_binding", "annotations", "step")
_BLOCK = (
    "iter_vars",
    "reads",
    "writes",
    "name_hint",
    "body",
    "init",
    "alloc_buffers",
    "match_buffers",
    "annotations",
)


def loop_with(loop: Any, **changed: Any) -> tirx.For:
    """Return a loop with some of its fields changed."""
    return tirx.For(**{name: getattr(loop, name) for name in _LOOP} | changed)


def block_with(block: Any, **changed: Any) -> SBlock:
    """Return a block with some of its fields changed."""
    return SBlock(**{name: getattr(block, name) for name in _BLOCK} | changed)


def is_annotated(node: Any, name: str) -> bool:
    """Return whether a node is the place of a block with an annotation of this name."""
    return isinstance(node, SBlockRealize) and name in node.block.annotations


def without_annotation(block: Any, name: str) -> SBlock:
    """Return a block without its annotation of this name."""
    return block_with(
        block, annotations={key: value for key, value in block.annotations.items() if key != name}
    )


def uses(value: Any, variables: Collection[Any]) -> bool:
    """Return whether an expression or a statement has one of these variables."""
    return any(node.same_as(variable) for node in walk(value) for variable in variables)


def substitute(node: Any, values: Sequence[tuple[Any, Any]]) -> Any:
    """Return an expression with variables replaced by values (TVM 0.27 exposes no substitution to Python)."""

    def of(variable: Any) -> Any:
        return next((value for known, value in values if known.same_as(variable)), variable)

    return tvm_ffi.structural_map(node, (tirx.Var, of))


def with_llvm_code(func: tirx.PrimFunc, code: str) -> tirx.PrimFunc:
    """Return a lowered kernel that is built together with code in LLVM's language, whose functions it calls."""
    return func.with_body(
        tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", tvm.ir.StringImm(code), func.body)
    )


def prefetch(element: Any, cache: int) -> Any:
    """Return the instruction that brings an element's line near, to be read: into the first cache for 3, the second for 2 (LLVM's locality)."""
    kind = (tirx.const(number, "int32") for number in (0, cache, 1))  # to read, how near, data
    return tirx.call_llvm_intrin("void", "llvm.prefetch", tirx.address_of(element), *kind)


def schedule_of(func: tirx.PrimFunc) -> Schedule:
    """Return a schedule of a kernel, as ``main``, that neither checks each step nor renders errors."""
    if func.attrs.get("global_symbol") != "main":
        func = func.with_attr("global_symbol", "main")
    return Schedule(tvm.IRModule({"main": func}), debug_mask=0, error_render_level="none")


def int64_sizes(shape: Sequence[int]) -> list[tirx.IntImm]:
    """Return a shape as TIR's 64-bit numbers; TVM's default is 32 bits."""
    return [tirx.IntImm("int64", size) for size in shape]


def whole(buffer: Any) -> Any:
    """Return the region of a buffer that is all of it."""
    return buffer[tuple(slice(0, size) for size in buffer.shape)]


SPATIAL, REDUCES = 0, 2
"""Kinds of a block's variables: it writes along the first, and sums over the second (``tvm.tirx.IterVar.DataPar`` and ``CommReduce``)."""
OPAQUE = 8
"""TVM's ``op_pattern`` of kernels that fuse with nothing."""
IS_SCHEDULED = "tirx.is_scheduled"
"""Attribute of a PrimFunc that is scheduled already and gets no default schedule."""
CPU_ONLY = "tunefarm.cpu_only"
"""Attribute of a PrimFunc whose loops can run on CPUs only; its value is the name of the operator."""
ATTENTION = "tunefarm.attention"
"""Attribute of a PrimFunc that computes an attention, whose loops are written by hand."""
POINTWISE_DEPTHWISE = "tunefarm.pointwise_depthwise"
"""The same of a PrimFunc that computes a pointwise and a depthwise convolution."""
CHECKED_INDICES = "tunefarm.checked_indices"
"""Attribute of a PrimFunc whose indices depend on constants that the importer has checked: they get no bounds."""
