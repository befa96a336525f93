"""Keep kernels within their tensors, whatever numbers they read: an index that depends on elements is cut off at the ends.

TVM checks no index: a gather at 1 << 40 reads the memory of its process, and a scatter writes it. A bound costs two instructions for each
index, which LLVM moves out of the loops in which the index does not change. Where a kernel checks an index itself before it reads
(``grid_sample``), or reads indices that the importer has checked (decision trees), there is no bound.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer

from tunefarm_tuning.tvm.base.tir import CHECKED_INDICES, block_with, nodes_of

_CHOICE = "prim.if_then_else"
_DEFINITIONS = (tirx.Bind, tirx.Let, tirx.For, SBlockRealize)


def bound_computed_indices(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with all indices that its kernels compute of elements within their tensors."""
    rewritten = {name: _bounded_kernel(func) for name, func in mod.functions.items()}
    if all(func.same_as(mod[name]) for name, func in rewritten.items()):
        return mod
    return tvm.IRModule(rewritten, attrs=mod.attrs)


def _bounded_kernel(func: Any) -> Any:
    if not isinstance(func, tirx.PrimFunc) or CHECKED_INDICES in func.attrs:
        return func
    variables = _computed_variables(func)
    accesses = nodes_of(func.body, (tvm.ir.TensorLoad, tirx.BufferStore))
    if not any(_is_computed(index, variables) for access in accesses for index in access.indices):
        return func

    def load(value: Any) -> Any:
        indices = _within(value.indices, value.source.shape, variables)
        return value if indices is None else tirx.BufferLoad(value.source, indices)

    def store(stmt: Any) -> Any:
        indices = _within(stmt.indices, stmt.buffer.shape, variables)
        return stmt if indices is None else tirx.BufferStore(stmt.buffer, stmt.value, indices)

    def block(stmt: Any) -> Any:
        reads, writes = (
            [_bounded_region(region, variables) for region in regions]
            for regions in (stmt.reads, stmt.writes)
        )
        return block_with(stmt, reads=reads, writes=writes)

    callbacks = [
        (tvm.ir.TensorLoad, load),
        (tirx.BufferStore, store),
        (tvm.ir.Call, _unbounded_where_checked),
    ]
    body = tvm_ffi.structural_map(func.body, callbacks)
    if tvm_ffi.structural_equal(body, func.body):
        return func
    return func.with_body(tvm_ffi.structural_map(body, (SBlock, block)))


def _computed_variables(func: tirx.PrimFunc) -> set[Any]:
    """Return the variables of a kernel whose values depend on elements."""
    sources = [source for node in nodes_of(func.body, _DEFINITIONS) for source in _sources(node)]
    computed: set[Any] = set()
    while more := {var for var, value in sources if var not in computed and _is_computed(value, computed)}:
        computed |= more
    return computed


def _sources(node: Any) -> list[tuple[Any, Any]]:
    """Return the variables that a node defines, with what their values are computed of."""
    if isinstance(node, tirx.For):
        return [(node.loop_var, node.min), (node.loop_var, node.extent)]
    if isinstance(node, SBlockRealize):
        pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
        return [(iter_var.var, value) for iter_var, value in pairs]
    return [(node.var, node.value)]


def _is_computed(index: Any, variables: Collection[Any]) -> bool:
    """Return whether an expression depends on elements."""
    if isinstance(index, tirx.IntImm):
        return False
    if isinstance(index, tirx.Var):
        return index in variables
    nodes = nodes_of(index, (tvm.ir.TensorLoad, tirx.Var))
    return any(isinstance(node, tvm.ir.TensorLoad) or node in variables for node in nodes)


def _within(indices: Any, shape: Any, variables: Collection[Any]) -> list[Any] | None:
    """Return the indices of an element, cut off where they need it; None if none does."""
    if not any(_is_computed(index, variables) for index in indices):
        return None
    return [
        _cut_off(index, size) if _is_computed(index, variables) else index
        for index, size in zip(indices, shape, strict=True)
    ]


def _cut_off(index: Any, size: Any) -> Any:
    """Return an index as the nearest one that a dimension has: ``max(min(index, size - 1), 0)``, where either is needed."""
    bounds = Analyzer().const_int_bound(index)
    if not isinstance(size, tirx.IntImm):
        last = size - tirx.const(1, _dtype(size))
        return tirx.max(tirx.min(tirx.Cast(_dtype(size), index), last), tirx.const(0, _dtype(size)))
    last = int(size) - 1
    # If the bound is above what the type can hold, so is no index.
    if bounds.max_value > last:
        index = tirx.min(index, tirx.const(last, _dtype(index)))
    return tirx.max(index, tirx.const(0, _dtype(index))) if bounds.min_value < 0 else index


def _dtype(value: Any) -> str:
    return str(value.expr_ty().dtype)


def _bounded_region(region: Any, variables: Collection[Any]) -> Any:
    """Return a block's region, all of each dimension in which it depends on elements."""
    if not any(_is_computed(value, variables) for part in region.region for value in (part.min, part.extent)):
        return region
    ranges = [
        tvm.ir.Range(tirx.const(0, _dtype(part.min)), size)
        if _is_computed(part.min, variables) or _is_computed(part.extent, variables)
        else part
        for part, size in zip(region.region, region.source.shape, strict=True)
    ]
    return tirx.BufferRegion(region.source, ranges)


def _unbounded_where_checked(call: Any) -> Any:
    """Return a choice without the bounds of indices that its condition checks."""
    if getattr(call.op, "name", "") != _CHOICE:
        return call
    condition, chosen, other = call.args
    if not nodes_of(condition, tvm.ir.TensorLoad):
        return call
    analyzer = Analyzer()

    def load(value: Any) -> Any:
        indices = [
            _checked(index, size, analyzer)
            for index, size in zip(value.indices, value.source.shape, strict=True)
        ]
        return tirx.BufferLoad(value.source, indices)

    with analyzer.constraint_scope(condition):
        chosen = tvm_ffi.structural_map(chosen, (tvm.ir.TensorLoad, load))
    return tirx.if_then_else(condition, chosen, other)


def _checked(index: Any, size: Any, analyzer: Analyzer) -> Any:
    """Return what a bounded index was without its bounds, if it is in its dimension by what the analyzer knows."""
    inner = index.a if isinstance(index, tirx.Max) else index
    inner = inner.a if isinstance(inner, tirx.Min) else inner
    if inner.same_as(index):
        return index
    is_within = analyzer.can_prove(inner >= 0) and analyzer.can_prove(inner < size)
    return inner if is_within else index
