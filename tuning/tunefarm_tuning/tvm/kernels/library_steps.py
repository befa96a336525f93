"""Steps after a product that oneDNN can compute with it: additions of tensors, ReLU, GELU and the like (its "post-ops")."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.tir import is_number, type_key, walk
from tunefarm_tuning.tvm.kernels.direct_conv import written_by

TYPES = {"bfloat16": 2, "float32": 3}
_BINARY = {"add": 0x1FFF0, "multiply": 0x1FFF1, "maximum": 0x1FFF2, "minimum": 0x1FFF3}
"""oneDNN's operations on the results and a tensor; the order of the two does not matter."""
_ALL, _PER_CHANNEL, _SINGLE = range(3)
_OPERATIONS = {"Add": "add", "Mul": "multiply", "Max": "maximum", "Min": "minimum", "Div": "divide"}

Formula = Any
"""The results as ``"x"``, a number, or a tuple of an operation and formulas; those of `_BINARY` sorted."""

_X: Formula = "x"
_HALF_WIDTH = round(2**0.5, 6)


def _formula(name: str, *operands: Formula) -> Formula:
    return (name, *(sorted(operands, key=repr) if name in _BINARY else operands))


_ERF = _formula("add", ("erf", ("divide", _X, _HALF_WIDTH)), 1.0)
_ELEMENT_WISE: dict[Formula, int] = {
    _formula("maximum", 0.0, _X): 0x20,  # ReLU
    _formula("multiply", _formula("multiply", _X, _ERF), 0.5): 0x31,  # GELU, as PyTorch exports it
    _formula("multiply", _formula("multiply", _X, 0.5), _ERF): 0x31,
    _formula("multiply", _X, ("sigmoid", _X)): 0x2C,  # SiLU
    ("sigmoid", _X): 0x29,
    ("tanh", _X): 0x21,
}
"""oneDNN's element-wise operations by formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostOp:
    """A step after a product.

    Attributes:
        kind: oneDNN's number of the operation.
        argument: Index of the kernel's argument that is its other operand; -1 without one.
        dtype: The operand's.
        elements: Whether it has an element for each result (0) or each channel (1), or a single one (2).
    """

    kind: int
    argument: int = -1
    dtype: str = "float32"
    elements: int = _ALL


_Steps = tuple[tuple[PostOp, ...], Formula]
"""Steps after a product, and a formula of their results."""


def post_ops_of(func: tirx.PrimFunc, statements: Sequence[Any]) -> tuple[PostOp, ...] | None:
    """Return the steps of statements, of which the first writes a product's results; None if one of them is unknown."""
    results = written_by(statements[0])
    shape, out = static_shape(results), func.params[-1]
    if shape is None or dtype_of(out) not in TYPES:
        return None
    # What each buffer holds: the results after some steps, or an argument, wider than it is stored.
    steps: dict[int, list[_Steps]] = {results.__chandle__(): [((), _X)]}
    tensors = {param.__chandle__(): number for number, param in enumerate(func.params[:-1])}
    last = results
    for statement in statements[1:]:
        store = _store_of(statement)
        if store is None or static_shape(store.buffer) != shape:
            return None
        last = store.buffer
        value = store.value
        if isinstance(value, tirx.Cast):
            source = _read(value.value, store)
            if source is None or not source.whole:
                return None
            if source.address in tensors and dtype_of(last) == "float32":
                tensors[last.__chandle__()] = tensors[source.address]
            elif source.address in steps and last.same_as(out):
                steps[last.__chandle__()] = steps[source.address]
            else:
                return None
            continue
        steps[last.__chandle__()] = _after(value, store, steps, tensors, func)
    done = [ops for ops, formula in steps.get(last.__chandle__(), []) if formula == _X]
    if not done or not last.same_as(out):
        return None
    return done[0]


def _after(
    value: Any, store: Any, steps: dict[int, list[_Steps]], tensors: dict[int, int], func: tirx.PrimFunc
) -> list[_Steps]:
    """Return what a value is: steps, and a formula of their results that may become another step; nothing if it is neither."""
    if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
        name, operands = str(value.op.name).rpartition(".")[2], list(value.args)
    elif name := _OPERATIONS.get(type_key(value).rpartition(".")[2], ""):
        operands = [value.a, value.b]
    else:
        return []
    parts: list[list[_Steps] | float] = []
    op: PostOp | None = None
    for operand in operands:
        if isinstance(operand, tirx.FloatImm):
            parts.append(round(float(operand.value), 6))
            continue
        read = _read(operand, store)
        if read is not None and read.address in steps:
            parts.append(steps[read.address])
        elif read is not None and read.address in tensors and name in _BINARY and op is None:
            argument = tensors[read.address]
            dtype = dtype_of(func.params[argument])
            if dtype not in TYPES:
                return []
            op = PostOp(kind=_BINARY[name], argument=argument, dtype=dtype, elements=read.elements)
        else:
            return []
    if op is not None:
        (before,) = parts
        return [] if isinstance(before, float) else [((*ops, op), _X) for ops, it in before if it == _X]
    after = []
    for ops in dict.fromkeys(ops for part in parts if not isinstance(part, float) for ops, _ in part):
        choices = [
            [part] if isinstance(part, float) else [it for of, it in part if of == ops] for part in parts
        ]
        for formulas in itertools.product(*choices):
            formula = _formula(name, *formulas)
            after.append((ops, formula))
            if formula in _ELEMENT_WISE:
                after.append(((*ops, PostOp(kind=_ELEMENT_WISE[formula])), _X))
    return after


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A read of a buffer: its address, and how many elements are read of it, one for each `PostOp.elements`."""

    address: int
    elements: int

    @property
    def whole(self) -> bool:
        """Whether each result reads an element of its own."""
        return self.elements == _ALL


def _read(operand: Any, store: Any) -> _Read | None:
    if not isinstance(operand, tvm.ir.TensorLoad):
        return None
    shape, sizes = static_shape(operand.source) or (), static_shape(store.buffer) or ()
    if len(shape) != len(sizes):
        return None
    address = operand.source.__chandle__()
    same = [
        is_.same_as(was) or (size == 1 and is_number(is_, 0))
        for is_, was, size in zip(operand.indices, store.indices, sizes, strict=True)
    ]
    if shape == sizes and all(same):
        return _Read(address=address, elements=_ALL)
    if prod(shape) == 1:
        return _Read(address=address, elements=_SINGLE)
    if prod(shape) == shape[-1] == sizes[-1] and same[-1]:
        return _Read(address=address, elements=_PER_CHANNEL)
    return None


def _store_of(statement: Any) -> Any:
    """Return the store of an element-wise loop nest, each of whose loops is an index of its result; None of another."""
    blocks = [node for node in walk(statement) if isinstance(node, s_tir.SBlock)]
    if len(blocks) != 1 or not isinstance(blocks[0].body, tirx.BufferStore) or blocks[0].init is not None:
        return None
    realize = next(node for node in walk(statement) if isinstance(node, s_tir.SBlockRealize))
    loops, body = [], statement
    while isinstance(body, tirx.For):
        loops.append(body.loop_var)
        body = body.body
    store = blocks[0].body
    names = [axis.var for axis in blocks[0].iter_vars]
    pairs = [(realize.iter_values, loops), (store.indices, names)]
    in_order = all(
        len(some) == len(others) and all(a.same_as(b) for a, b in zip(some, others, strict=True))
        for some, others in pairs
    )
    return store if in_order else None


def dtype_of(param: Any) -> str:
    """Return the dtype of a buffer."""
    return str(param.ty.dtype.dtype)
