"""Weight pre-packing: store weights in the order in which a kernel reads them.

Weights are known when a network is compiled, so they may lie in memory as their kernel likes best.

1. `mark_constants` marks the arguments of a workload that are weights (TVM's ``layout_free_buffers``).
2. MetaSchedule's ``RewriteLayout``, or a schedule rule, puts a block at the head of the kernel that copies a weight into the
   order of the innermost loops.
3. `split_off_packing` takes that block out of the kernel and describes it as a `Packing`.
4. `pack` applies the packing to the weights of a network, once, at compile time.

TVM's own passes for this (``SplitLayoutRewritePreproc``, ``LiftTransformParams``) work on Relax calls. Kernels are measured and
checked by themselves here, so this module works on PrimFuncs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from tunefarm_tuning.tvm.base.relax_graph import entry_names
from tunefarm_tuning.tvm.base.tir import CPU_ONLY, walk
from tunefarm_tuning.tvm.kernels.digit_order import pack_by_digits

_FREE = "layout_free_buffers"
_WEIGHTS = "tunefarm.weights"
"""Like `_FREE` for weights that keep their order: no rule of TVM's reads it, but how a kernel is timed depends on it."""
_GIVEN = "tunefarm.given_orders"
"""The orders in which weights lie for other kernels, by the arguments' indices: a default schedule reads them so, too."""
MARKS = frozenset({_FREE, _WEIGHTS, _GIVEN})
"""Attributes of a workload that tell schedules about its weights; they mean nothing to a scheduled kernel."""
_PACKS = "meta_schedule.layout_rewrite_preproc"
_MAX_RUN = 64
_MIN_BYTES = 16 << 10
"""Smaller weights fit into the innermost cache in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The order in which a kernel takes one of its weights.

    Attributes:
        shape: Shape of the weight in the workload.
        packed_shape: Shape that the kernel takes. It has as many elements, or more where the order is unchanged (`in_order`).
        index_map: Maps an element's indices in the workload to those in the kernel.
    """

    shape: tuple[int, ...]
    packed_shape: tuple[int, ...]
    dtype: str
    index_map: tirx.IndexMap

    @property
    def is_padded(self) -> bool:
        """Whether the packed weight has padding, which the kernel does not read."""
        return math.prod(self.packed_shape) > math.prod(self.shape)

    def is_same_as(self, other: Packing) -> bool:
        """Return whether both pack a weight into the same bytes of the same shape."""
        return (self.shape, self.packed_shape, self.dtype) == (
            other.shape,
            other.packed_shape,
            other.dtype,
        ) and bool(tvm_ffi.structural_equal(self.index_map, other.index_map, map_free_vars=True))

    @property
    def in_order(self) -> bool:
        """Whether all elements keep their offsets in memory."""
        indices = [tirx.Var(f"i{n}", "int64") for n in range(len(self.shape))]
        packed = self.index_map.map_indices(indices)
        shift = _offset(packed, self.packed_shape) - _offset(indices, self.shape)
        return bool(tvm.sym.Analyzer().can_prove_equal(shift, tirx.const(0, "int64")))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedKernel:
    """A kernel that takes some of its arguments packed; `packings` by the arguments' indices."""

    func: tirx.PrimFunc
    packings: Mapping[int, Packing] = field(default_factory=dict)


def mark_constants(mod: tvm.IRModule, *, may_pack: bool = True) -> tvm.IRModule:
    """Return a lowered module whose PrimFuncs are marked with the arguments that are weights in every call.

    Schedules may pack these weights if `may_pack`.
    """
    marks: dict[str, set[int]] = {}
    for name, args in all_kernel_calls(mod):
        weights = {number for number, arg in enumerate(args) if _is_weight(arg)}
        marks[name] = marks.get(name, weights) & weights
    result = tvm.IRModule(dict(mod.functions.items()), attrs=mod.attrs)
    for name, weights in marks.items():
        if weights and CPU_ONLY not in mod[name].attrs:  # such kernels read their weights unpacked
            result.update_func(
                result.get_global_var(name), with_weights(mod[name], weights, may_pack=may_pack)
            )
    return result


def with_weights(func: tirx.PrimFunc, weights: Collection[int], *, may_pack: bool = True) -> tirx.PrimFunc:
    """Return a PrimFunc marked with the indices of the arguments that are weights."""
    return func.with_attr(_FREE if may_pack else _WEIGHTS, sorted(weights))


def packable_weights(func: tirx.PrimFunc) -> frozenset[int]:
    """Return the indices of a workload's arguments that are weights and may be packed."""
    return _numbers(func, _FREE)


def with_weights_as_given(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a workload whose weights a schedule may not pack."""
    return func.without_attr(_FREE) if packable_weights(func) else func


def may_be_packed(func: tirx.PrimFunc, buffer: Any) -> bool:
    """Return whether a buffer is a weight that a schedule may pack."""
    return any(func.params[number].same_as(buffer) for number in packable_weights(func))


def with_given_orders(func: tirx.PrimFunc, packings: Mapping[int, Packing]) -> tirx.PrimFunc:
    """Return a workload whose default schedule reads some weights in the orders in which other kernels have them packed."""
    orders = {
        str(number): packing.index_map
        for number, packing in packings.items()
        if number in packable_weights(func) and not packing.is_padded
    }
    return func.with_attr(_GIVEN, orders) if orders else func


def given_order(func: tirx.PrimFunc, buffer: Any) -> tirx.IndexMap | None:
    """Return the order in which a buffer is given; None if that is for the schedule to choose."""
    for number, order in (func.attrs.get(_GIVEN) or {}).items():
        if func.params[int(number)].same_as(buffer):
            return order
    return None


def contiguous_run(order: tirx.IndexMap, shape: Sequence[int]) -> int:
    """Return how many elements of the last dimension lie side by side in an order: a power of two that divides it, at most 64."""
    packed_shape = [int(size) for size in order.map_shape(list(shape))]
    analyzer = tvm.sym.Analyzer()
    columns = shape[-1]

    @cache
    def offset(column: int) -> int:
        at = [tirx.const(index, "int64") for index in (*[0] * (len(shape) - 1), column)]
        return int(analyzer.simplify(_offset(order.map_indices(at), packed_shape)))

    run = 1
    while run < _MAX_RUN and columns % (2 * run) == 0:
        starts = (0, columns - 2 * run)
        if any(offset(start + step) != offset(start) + step for start in starts for step in range(2 * run)):
            break
        run *= 2
    return run


def mark_packing_block(sch: Any, block: Any) -> None:
    """Mark a block of a schedule as one that packs a weight, for `split_off_packing`."""
    sch.annotate(block, _PACKS, 1)


def weights_of(func: tirx.PrimFunc) -> frozenset[int]:
    """Return the indices of a workload's arguments that are weights."""
    return _numbers(func, _FREE) | _numbers(func, _WEIGHTS)


def _numbers(func: tirx.PrimFunc, mark: str) -> frozenset[int]:
    numbers = func.attrs.get(mark) if func.attrs else None
    return frozenset(int(number) for number in numbers or ())


def all_kernel_calls(mod: tvm.IRModule) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the name and the arguments, without outputs, of every kernel call in a module's entries, in program order."""
    for name in entry_names(mod):
        yield from kernel_calls(mod[name].body)


def kernel_calls(body: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the name and the arguments, without outputs, of every kernel call in a function's body, in program order."""
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                yield from kernel_calls(value.true_branch)
                yield from kernel_calls(value.false_branch)
            elif (
                isinstance(value, tvm.ir.Call) and value.args and isinstance(value.args[0], tvm.ir.GlobalVar)
            ):
                yield value.args[0].name_hint, kernel_arguments(value)


def kernel_arguments(call: Any) -> Sequence[Any]:
    """Return the arguments that a call gives a kernel, without outputs."""
    if len(call.args) < 2:
        return ()
    packed_args = call.args[1]
    return list(packed_args.fields) if isinstance(packed_args, relax.Tuple) else [packed_args]


def _is_weight(arg: Any) -> bool:
    if not isinstance(arg, tvm.ir.GenericConst):
        return False
    tensor = arg.value
    sizes = [int(size) for size in tensor.shape]
    matrix = sum(size > 1 for size in sizes) > 1
    return matrix and int(np.prod(sizes)) * np.dtype(str(tensor.dtype)).itemsize >= _MIN_BYTES


def split_off_packing(scheduled: tvm.IRModule) -> PackedKernel:
    """Return a scheduled ``main`` without its packing blocks, and the packings that they did.

    A kernel that takes a weight with gaps between the elements keeps its packing blocks.
    """
    func = scheduled["main"]
    packings: dict[int, Packing] = {}
    for block in _packing_blocks(func):
        store = block.body
        source = block.reads[0].source
        number = next(n for n, param in enumerate(func.params) if param.same_as(source))
        index_map = tirx.IndexMap([it.var for it in block.iter_vars], list(store.indices), None)
        packings[number] = Packing(
            shape=_sizes(source.ty.shape),
            packed_shape=_sizes(store.buffer.ty.shape),
            dtype=str(source.ty.dtype.dtype),
            index_map=index_map,
        )
    if any(packing.is_padded and not packing.in_order for packing in packings.values()):
        return PackedKernel(func=func)
    bare = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(scheduled)["main"]
    # A new PrimFunc, because the type of the old one, which Relax reads, still has the unpacked weights.
    func = tirx.PrimFunc(bare.params, bare.body, bare.ret_type, bare.attrs)
    return PackedKernel(func=func, packings=packings)


def panel_order(rank: int, width: int) -> tirx.IndexMap:
    """Return the index map of panels of a weight of some rank: all rows of `width` columns (the last dimension), contiguous."""
    return tirx.IndexMap.from_func(
        lambda *at: [tirx.floordiv(at[-1], width), *at[:-1], tirx.floormod(at[-1], width)],
        ndim=rank,
        index_dtype="int64",
    )


def pack_function(packing: Packing) -> tirx.PrimFunc:
    """Return a PrimFunc that packs an argument.

    Its input and its output both have the shape of the workload; only the order of the output's elements is the packed one.
    """
    source = te.placeholder(packing.shape, packing.dtype, name="given")
    if packing.is_padded:
        return te.create_prim_func([source, te.compute(packing.shape, lambda *i: source[i], name="packed")])
    inverse = packing.index_map.inverse(list(packing.shape))

    def element(*indices: Any) -> Any:
        packed_indices = _indices(_offset(indices, packing.shape), packing.packed_shape)
        return source[tuple(inverse.map_indices(packed_indices))]

    return te.create_prim_func([source, te.compute(packing.shape, element, name="packed")])


def pack(array: NDArray[Any], packing: Packing) -> NDArray[Any]:
    """Return a weight packed, in the shape that the kernel takes."""
    if packing.is_padded:
        padded = np.zeros(math.prod(packing.packed_shape), array.dtype)
        padded[: array.size] = array.reshape(-1)
        return padded.reshape(packing.packed_shape)
    by_digits = pack_by_digits(array, packing.index_map, packing.packed_shape)
    if by_digits is not None:
        return by_digits
    module = tvm.IRModule({"main": pack_function(packing).with_attr("global_symbol", "main")})
    source = tvm.runtime.tensor(np.ascontiguousarray(array))
    packed = tvm.runtime.empty(packing.shape, packing.dtype)
    tvm.tirx.build(module, target="llvm")(source, packed)
    result: NDArray[Any] = packed.numpy()
    return result.reshape(packing.packed_shape)


def _packing_blocks(func: tirx.PrimFunc) -> Iterator[Any]:
    for node in walk(func.body):
        if isinstance(node, tvm.s_tir.SBlock) and _PACKS in node.annotations:
            yield node


def _offset(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return the offset of an element in memory, in elements."""
    offset: Any = tirx.const(0, "int64")
    for index, size in zip(indices, shape, strict=True):
        offset = offset * size + index
    return offset


def _indices(offset: Any, shape: Sequence[int]) -> list[Any]:
    """Return the indices of the element at an offset."""
    indices: list[Any] = []
    for size in reversed(shape):
        indices.insert(0, offset % size)
        offset = offset // size
    return indices


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)
