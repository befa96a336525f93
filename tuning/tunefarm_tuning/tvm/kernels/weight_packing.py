"""Weights in the order in which a kernel reads them.

A weight is known when a network is compiled, so it may lie in memory as its kernel likes best. A workload says which of its
arguments are weights (`mark_constants`: TVM's ``layout_free_buffers``). MetaSchedule's ``RewriteLayout`` then puts a block
at the head of each schedule that copies them into the order of the innermost loops. That block is no part of the kernel
(`unpacked`): it is run once, at compile time, on the weights of the network (`pack`).

TVM's own way (``SplitLayoutRewritePreproc``, ``LiftTransformParams``) works on Relax calls; kernels are measured and
checked by themselves here, so it is done on PrimFuncs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from tunefarm_tuning.tvm.base.tir import CPU_ONLY, walk

_FREE = "layout_free_buffers"
_WEIGHTS = "tunefarm.weights"
"""The same of a kernel that takes its weights as they lie: no rule of TVM's reads it. What it is timed with depends on it."""
_PACKS = "meta_schedule.layout_rewrite_preproc"
_LEAST_BYTES = 16 << 10
"""Less than this is in the innermost cache whatever its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The order that a kernel wants one of its weights in.

    Attributes:
        shape: Before.
        packed_shape: After; of as many elements, or of more where the order is the old one (`in_order`).
        index_map: From an element's place before to its place after.
    """

    shape: tuple[int, ...]
    packed_shape: tuple[int, ...]
    dtype: str
    index_map: tirx.IndexMap

    @property
    def is_padded(self) -> bool:
        """Whether there are places that no element goes to; the kernel does not read them."""
        return math.prod(self.packed_shape) > math.prod(self.shape)

    @property
    def in_order(self) -> bool:
        """Whether the elements lie in memory as before."""
        place = [tirx.Var(f"i{n}", "int64") for n in range(len(self.shape))]
        moved = _number(self.index_map.map_indices(place), self.packed_shape) - _number(place, self.shape)
        return bool(tvm.sym.Analyzer().can_prove_equal(moved, tirx.const(0, "int64")))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedKernel:
    """A kernel that takes some of its arguments packed.

    Attributes:
        packings: By the number of the argument.
    """

    func: tirx.PrimFunc
    packings: Mapping[int, Packing] = field(default_factory=dict)


def mark_constants(mod: tvm.IRModule, *, may_pack: bool = True) -> tvm.IRModule:
    """Return a lowered module, its PrimFuncs marked with those arguments that are weights wherever they are called.

    Args:
        mod: The module.
        may_pack: Whether schedules may have them in an order of their own.
    """
    marks: dict[str, set[int]] = {}
    for name, args in kernel_calls(mod["main"].body):
        weights = {number for number, arg in enumerate(args) if _is_weight(arg)}
        marks[name] = marks.get(name, weights) & weights
    made = tvm.IRModule(dict(mod.functions.items()), attrs=mod.attrs)
    for name, weights in marks.items():
        if weights and CPU_ONLY not in mod[name].attrs:  # those read their weights as they lie
            made.update_func(made.get_global_var(name), with_weights(mod[name], weights, may_pack=may_pack))
    return made


def with_weights(func: tirx.PrimFunc, weights: Collection[int], *, may_pack: bool = True) -> tirx.PrimFunc:
    """Return a PrimFunc marked with those of its arguments that are weights."""
    return func.with_attr(_FREE if may_pack else _WEIGHTS, sorted(weights))


def marked(func: tirx.PrimFunc) -> frozenset[int]:
    """Return which arguments of a workload are weights that a schedule may pack."""
    return _numbers(func, _FREE)


def as_it_lies(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a workload whose weights a schedule has to read in the order that they have."""
    return func.without_attr(_FREE) if marked(func) else func


def lies_freely(func: tirx.PrimFunc, buffer: Any) -> bool:
    """Whether a buffer is a weight that a schedule may pack."""
    return any(func.params[number].same_as(buffer) for number in marked(func))


def mark_packing(sch: Any, block: Any) -> None:
    """Mark the block of a schedule that puts a weight in order, for `unpacked`."""
    sch.annotate(block, _PACKS, 1)


def weights_of(func: tirx.PrimFunc) -> frozenset[int]:
    """Return which arguments of a workload are weights."""
    return _numbers(func, _FREE) | _numbers(func, _WEIGHTS)


def _numbers(func: tirx.PrimFunc, mark: str) -> frozenset[int]:
    found = func.attrs.get(mark) if func.attrs else None
    return frozenset(int(number) for number in found or ())


def kernel_calls(body: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield name and arguments (outputs not among them) of every call of a kernel below a function's body, in program order."""
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
    """Return what a call hands a kernel, but for the outputs."""
    if len(call.args) < 2:
        return ()
    given = call.args[1]
    return list(given.fields) if isinstance(given, relax.Tuple) else [given]


def _is_weight(arg: Any) -> bool:
    if not isinstance(arg, tvm.ir.GenericConst):
        return False
    tensor = arg.value
    sizes = [int(size) for size in tensor.shape]
    matrix = sum(size > 1 for size in sizes) > 1
    return matrix and int(np.prod(sizes)) * np.dtype(str(tensor.dtype)).itemsize >= _LEAST_BYTES


def unpacked(scheduled: tvm.IRModule) -> PackedKernel:
    """Return a schedule's kernel without what packs its weights, and how it wants them.

    A kernel that wants gaps between its weights goes on packing them itself.

    Args:
        scheduled: With one PrimFunc, ``main``.
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
    # Made anew: the old type, which Relax looks at, still has the plain weights.
    func = tirx.PrimFunc(bare.params, bare.body, bare.ret_type, bare.attrs)
    return PackedKernel(func=func, packings=packings)


def panels(rank: int, width: int) -> tirx.IndexMap:
    """Return the order in which so many columns at a time, of all rows, lie together."""
    return tirx.IndexMap.from_func(
        lambda *at: [tirx.floordiv(at[-1], width), *at[:-1], tirx.floormod(at[-1], width)],
        ndim=rank,
        index_dtype="int64",
    )


def pack_function(packing: Packing) -> tirx.PrimFunc:
    """Return a PrimFunc that copies an argument, as it was, to what the kernel takes in its place.

    Both of its arguments have the old shape, and so does what comes of it: only the order of the elements is the new one.
    """
    given = te.placeholder(packing.shape, packing.dtype, name="given")
    if packing.is_padded:
        return te.create_prim_func([given, te.compute(packing.shape, lambda *i: given[i], name="packed")])
    inverse = packing.index_map.inverse(list(packing.shape))

    def element(*place: Any) -> Any:
        packed_place = _place(_number(place, packing.shape), packing.packed_shape)
        return given[tuple(inverse.map_indices(packed_place))]

    return te.create_prim_func([given, te.compute(packing.shape, element, name="packed")])


def pack(array: NDArray[Any], packing: Packing) -> NDArray[Any]:
    """Return an argument as the kernel takes it, in the new shape."""
    if packing.is_padded:
        room = np.zeros(math.prod(packing.packed_shape), array.dtype)
        room[: array.size] = array.reshape(-1)
        return room.reshape(packing.packed_shape)
    width = packing.packed_shape[-1]
    if tvm_ffi.structural_equal(packing.index_map, panels(len(packing.shape), width), map_free_vars=True):
        cut = array.reshape(*packing.shape[:-1], -1, width)
        return np.ascontiguousarray(np.moveaxis(cut, -2, 0))
    module = tvm.IRModule({"main": pack_function(packing).with_attr("global_symbol", "main")})
    given = tvm.runtime.tensor(np.ascontiguousarray(array))
    packed = tvm.runtime.empty(packing.shape, packing.dtype)
    tvm.tirx.build(module, target="llvm")(given, packed)
    result: NDArray[Any] = packed.numpy()
    return result.reshape(packing.packed_shape)


def _packing_blocks(func: tirx.PrimFunc) -> Iterator[Any]:
    for node in walk(func.body):
        if isinstance(node, tvm.s_tir.SBlock) and _PACKS in node.annotations:
            yield node


def _number(place: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return the number of an element in memory."""
    number: Any = tirx.const(0, "int64")
    for index, size in zip(place, shape, strict=True):
        number = number * size + index
    return number


def _place(number: Any, shape: Sequence[int]) -> list[Any]:
    """Return where the element of a number is."""
    place: list[Any] = []
    for size in reversed(shape):
        place.insert(0, number % size)
        number = number // size
    return place


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)
