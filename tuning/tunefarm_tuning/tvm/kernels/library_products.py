"""Products by constant weights that a library, oneDNN, can compute, at the head of fused kernels.

The first statements of a kernel have to be structurally equal to those that make such a product of the same shapes, so that nothing else
is ever taken for one. Steps after it that the library knows are its work as well; a kernel with others is left alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED, int64_sizes
from tunefarm_tuning.tvm.kernels.bfloat16_kernels import bfloat16_conv2d, bfloat16_matmul
from tunefarm_tuning.tvm.kernels.direct_conv import compute_the_same, statements_of, written_by
from tunefarm_tuning.tvm.kernels.dot_products import BFLOAT16
from tunefarm_tuning.tvm.kernels.float32_products import cropped, float32_conv2d, float32_matmul
from tunefarm_tuning.tvm.kernels.library_steps import TYPES, PostOp, dtype_of, post_ops_of

READY, RUN, DONE = "tunefarm_onednn_ready", "tunefarm_onednn_run", "tunefarm_onednn_done"
"""Functions of ``codegen/onednn.c``."""
CALLS_LIBRARY = "tunefarm.calls_library"
"""Attribute of a PrimFunc that is to be linked with ``codegen/onednn.c``."""

_MOST_TENSORS = 4
_MOST_POST_OPS = 8
_MOST_SLICES = 64
_STRIDES, _DILATIONS = (1, 2, 3, 4), (1, 2, 4)
_KEY_WORDS = 2

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryProduct:
    """A 2-D convolution (channels last, one group) or a matrix product, with the steps after it.

    Attributes:
        data: Index of the kernel's argument that is the activations.
        weights: Index of the weights.
        data_shape: NHWC; ``(1, 1, rows, depth)`` of a matrix product.
        out_shape: The same of the results.
        dtype: Of activations and weights.
        out_dtype: Of the results.
        kernel: Height and width of a convolution; none of a matrix product.
        strides: Down, across.
        padding: Above, left.
        dilation: Down, across.
        lanes: Sums of the instruction that the weights are packed for (`dot_products.packed`); 0 if they are not packed.
        columns: Results that weights which are not packed have, with those that are cropped (`transform.ragged_products`).
        post_ops: The steps after it.
    """

    data: int
    weights: int
    data_shape: Shape
    out_shape: Shape
    dtype: str
    out_dtype: str = ""
    kernel: Shape = ()
    strides: Shape = (1, 1)
    padding: Shape = (0, 0)
    dilation: Shape = (1, 1)
    lanes: int = 0
    columns: int = 0
    post_ops: tuple[PostOp, ...] = ()

    def text(self, slices: int) -> str:
        """Return what ``codegen/onednn.c`` reads: the fields of its ``Product``, then those of each ``PostOp``."""
        products = BFLOAT16.products if self.lanes else self.columns
        tensors = {argument: number for number, argument in enumerate(self.tensors)}
        numbers: list[int] = [bool(self.kernel), TYPES[self.dtype], TYPES[self.out_dtype], slices]
        numbers += [*self.data_shape, *self.out_shape[1:], *(self.kernel or (1, 1))]
        numbers += [*self.strides, *self.padding, *self.dilation, self.lanes, products, len(self.post_ops)]
        for op in self.post_ops:
            numbers += [op.kind, tensors.get(op.argument, -1), TYPES[op.dtype], op.elements]
        return " ".join(str(int(number)) for number in numbers)

    @property
    def tensors(self) -> list[int]:
        """The arguments that the steps after the product read."""
        return list(dict.fromkeys(op.argument for op in self.post_ops if op.argument >= 0))


def match_library_product(func: tirx.PrimFunc) -> LibraryProduct | None:
    """Return the product that a kernel consists of; None if the library cannot compute all of the kernel."""
    root = func.body.block if isinstance(func.body, s_tir.SBlockRealize) else None
    if root is None or any(static_shape(param) is None for param in func.params):
        return None
    statements = statements_of(root)
    # Padding, sums, and sums without those of lanes that nobody asked for.
    for count in range(min(len(statements), 3), 0, -1):
        for data, weights in itertools.permutations(range(len(func.params) - 1), 2):
            for product, make in _candidates(func, data, weights, statements[:count]):
                if _computes(make, func, product, statements[:count]):
                    return _complete(func, product, statements[count - 1 :])
    return None


def weights_key(weights: NDArray[Any]) -> NDArray[np.int64]:
    """Return a digest of weights, by which prepared ones are kept."""
    digest = hashlib.sha256(np.ascontiguousarray(weights).tobytes()).digest()
    return np.frombuffer(digest[: 8 * _KEY_WORDS], np.int64).copy()


def library_kernel(fallback: tirx.PrimFunc, product: LibraryProduct, *, slices: int) -> tirx.PrimFunc:
    """Return the scheduled kernel that calls the library, or runs `fallback`, the scheduled one, where that is missing or fails.

    Its arguments are those of `fallback`, with `weights_key` of its weights before the last, the output.
    """
    key = te.create_prim_func([te.placeholder(int64_sizes((_KEY_WORDS,)), "int64", name="key")]).params[0]
    params = list(fallback.params)
    slices = max(1, min(slices, _MOST_SLICES))
    images = product.data_shape[0]
    if images < slices:  # a slice has whole images, or rows of one
        slices -= slices % images
    state, number = tirx.Var("state", "handle"), tirx.Var("number", "int32")
    ready = tirx.call_extern(
        "handle", READY, tvm.ir.StringImm(product.text(slices)), key.data, params[product.weights].data
    )
    tensors = [*product.tensors, *([len(params) - 1] * _MOST_TENSORS)][:_MOST_TENSORS]
    pointers = [params[index].data for index in (product.data, len(params) - 1, *tensors)]
    run = tirx.Evaluate(tirx.call_extern("int32", RUN, state, number, *pointers))
    by_library = tirx.For(number, 0, slices, tirx.ForKind.PARALLEL, run)
    is_done = tirx.call_extern("int32", DONE, state) != 0
    body = tirx.SeqStmt(
        [
            tirx.Bind(state, ready),
            tirx.IfThenElse(tirx.Not(tirx.isnullptr(state)), by_library, None),
            tirx.IfThenElse(tirx.Not(is_done), fallback.body, None),
        ]
    )
    kernel = tirx.PrimFunc([*params[:-1], key, params[-1]], body)
    return kernel.with_attr({"tirx.noalias": True, "s_tir": True, IS_SCHEDULED: True, CALLS_LIBRARY: True})


def _candidates(
    func: tirx.PrimFunc, data: int, weights: int, statements: Sequence[Any]
) -> Iterator[tuple[LibraryProduct, Callable[..., Any]]]:
    """Yield products of these arguments that may be the statements', and what makes each of two tensors."""
    shape, kernel = (static_shape(func.params[index]) or () for index in (data, weights))
    dtype = dtype_of(func.params[data])
    out = static_shape(written_by(statements[-1])) or ()
    if (
        dtype not in TYPES
        or dtype != dtype_of(func.params[weights])
        or len(shape) < 2
        or len(out) != len(shape)
    ):
        return
    if dtype == "float32":
        lanes, window, depth = 0, kernel[:-2], kernel[-2] if len(kernel) > 1 else 0
        fits = shape[-1] == depth and out[-1] <= kernel[-1]
    else:
        lanes, window, depth = kernel[-1] // BFLOAT16.products, kernel[1:-2], shape[-1]
        fits = (
            len(kernel) > 2
            and -(-depth // BFLOAT16.products) == kernel[-2]
            and -(-out[-1] // lanes) == kernel[0]
        )
    if not fits:
        return
    columns = 0 if lanes else kernel[-1]
    of = partial(LibraryProduct, data=data, weights=weights, dtype=dtype, lanes=lanes, columns=columns)
    if not window and len(kernel) == (3 if lanes else 2) and out[:-1] == shape[:-1]:
        rows = prod(shape[:-1])
        make = (
            partial(bfloat16_matmul, channels=out[-1]) if lanes else partial(_first, float32_matmul, out[-1])
        )
        yield of(data_shape=(1, 1, rows, depth), out_shape=(1, 1, rows, out[-1])), make
    if len(window) == 2 and len(shape) == 4:
        padded = static_shape(written_by(statements[0])) if len(statements) > 1 else None
        make_conv = (
            partial(bfloat16_conv2d, channels=out[-1]) if lanes else partial(_first, float32_conv2d, out[-1])
        )
        of_conv = partial(of, data_shape=shape, out_shape=out, kernel=window)
        yield from _convolutions(of_conv, make_conv, shape, padded or shape, window, out)


def _convolutions(
    of: Callable[..., LibraryProduct],
    make: Callable[..., Any],
    shape: Shape,
    padded: Shape,
    window: Shape,
    out: Shape,
) -> Iterator[tuple[LibraryProduct, Callable[..., Any]]]:
    """Yield the convolutions from a shape, padded to another, to `out`: by stride, dilation, and how much of the padding is in front."""
    total = [padded[axis] - shape[axis] for axis in (1, 2)]
    for stride, dilation in itertools.product(_STRIDES, _DILATIONS if max(window) > 1 else (1,)):
        spare = [padded[axis] - (window[axis - 1] - 1) * dilation - 1 for axis in (1, 2)]
        if min(spare) < 0 or [size // stride + 1 for size in spare] != list(out[1:3]):
            continue
        steps = {"strides": (stride, stride), "dilation": (dilation, dilation)}
        for above, left in itertools.product(
            *(sorted({all_ // 2, all_ - all_ // 2, 0, all_}) for all_ in total)
        ):
            padding = (above, left, total[0] - above, total[1] - left)
            yield of(padding=(above, left), **steps), partial(make, padding=padding, **steps)


def _first(make: Callable[..., Any], results: int, x: Any, weights: Any, **attributes: Any) -> Any:
    return cropped(make(x, weights, **attributes), results)


def _computes(
    make: Callable[..., Any], func: tirx.PrimFunc, product: LibraryProduct, statements: Sequence[Any]
) -> bool:
    """Return whether statements are those of a product, by their structure."""
    params = [func.params[product.data], func.params[product.weights]]
    x, weights = (
        te.placeholder(int64_sizes(static_shape(param) or ()), dtype_of(param), name="x") for param in params
    )
    expected = te.create_prim_func([x, weights, make(x, weights)], index_dtype_override="int64")
    return compute_the_same(expected, statements, params)


def _complete(
    func: tirx.PrimFunc, product: LibraryProduct, statements: Sequence[Any]
) -> LibraryProduct | None:
    """Return the product with the steps after it; None if one of them is unknown. The first statement writes its results."""
    post_ops = post_ops_of(func, statements)
    if post_ops is None:
        return None
    complete = replace(product, out_dtype=dtype_of(func.params[-1]), post_ops=post_ops)
    fits = len(post_ops) <= _MOST_POST_OPS and len(complete.tensors) <= _MOST_TENSORS
    return complete if fits else None
