"""Recognise a direct 3x3 convolution at the head of a fused kernel, and take the kernel apart around it.

The first statements of the kernel have to be structurally equal to those that TVM's operator library, or our kernel of bfloat16, makes
for a convolution of the same shapes. So nothing else is ever taken for a convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations, product
from typing import Any

import tvm_ffi
from tvm import s_tir, te, tirx, topi

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.tir import int64_sizes, walk
from tunefarm_tuning.tvm.kernels.bfloat16_kernels import bfloat16_conv2d
from tunefarm_tuning.tvm.kernels.dot_products import BFLOAT16, BFLOAT16_MATRICES, DotProduct

Shape = tuple[int, ...]

_KERNEL = 3
_PADDINGS = (1, 0)


_Maker = Callable[[Shape, Shape, int, Sequence[Any]], Iterator[tirx.PrimFunc]]
"""Yields the convolutions that arguments of two shapes may be of, with a padding, at the head of statements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectConv:
    """A 3x3 convolution of stride 1 at the head of a fused kernel: channels last, one group, a float32 result.

    Attributes:
        data: Index of the kernel's argument that is the input (NHWC).
        weights: Index of the argument that is the weights (HWIO; of bfloat16, as `dot_products.packed` returns them).
        dtype: Of both.
        kind: The instruction for which weights of bfloat16 are packed; None for float32.
        lanes: The sums of that instruction; 0 for float32.
        padding: Padding on each of the four sides.
        result: The buffer that holds the convolution's result; the kernel's output if nothing follows.
        epilogue: The statements after the convolution that were fused with it.
    """

    data: int
    weights: int
    dtype: str = "float32"
    kind: DotProduct | None = None
    lanes: int = 0
    data_shape: Shape
    out_shape: Shape
    padding: int
    result: Any
    epilogue: tuple[Any, ...]


def match_direct_conv(func: tirx.PrimFunc) -> DirectConv | None:
    """Return the convolution at the head of a kernel; None without one of the supported form."""
    root = func.body.block if isinstance(func.body, s_tir.SBlockRealize) else None
    if root is None:
        return None
    shapes = [_shape_of(param, "float32") for param in func.params]
    narrow = [_shape_of(param, "bfloat16") for param in func.params]
    if not all(map(any, zip(shapes, narrow, strict=True))):
        return None
    statements = statements_of(root)
    makers: list[tuple[str, list[Shape], DotProduct | None, _Maker]] = [
        ("float32", shapes, None, _of_float32),
        *(("bfloat16", narrow, kind, partial(_of_bfloat16, kind)) for kind in (BFLOAT16, BFLOAT16_MATRICES)),
    ]
    for dtype, of_dtype, kind, expected_of in makers:
        for (weights, data), padding in product(permutations(range(len(func.params) - 1), 2), _PADDINGS):
            for expected in expected_of(of_dtype[data], of_dtype[weights], padding, statements):
                conv = _match(func, statements, data, weights, expected)
                if conv is not None:
                    return replace(
                        conv,
                        data_shape=of_dtype[data],
                        padding=padding,
                        dtype=dtype,
                        kind=kind,
                        lanes=0 if kind is None else of_dtype[weights][-1] // kind.products,
                    )
    return None


def _match(
    func: tirx.PrimFunc, statements: Sequence[Any], data: int, weights: int, expected: tirx.PrimFunc
) -> DirectConv | None:
    expected_statements = statements_of(expected.body.block)
    head, epilogue = statements[: len(expected_statements)], tuple(statements[len(expected_statements) :])
    if not compute_the_same(expected, head, [func.params[data], func.params[weights]]):
        return None
    result = written_by(head[-1])
    return DirectConv(
        data=data,
        weights=weights,
        data_shape=(),
        out_shape=tuple(int(size) for size in result.shape),
        padding=0,
        result=result,
        epilogue=epilogue,
    )


def _results_of(statements: Sequence[Any], kernel: Shape, kind: DotProduct) -> list[int]:
    """Return how many channels a convolution of bfloat16 may have: those that a stage crops it to, else all that its packed weights have."""
    lanes = kernel[-1] // kind.products
    room = kernel[0] * lanes
    sizes = {int(written_by(statement).shape[-1]) for statement in statements[:3]}
    return [*(size for size in sizes if room - lanes < size < room), room]


def _of_bfloat16(
    kind: DotProduct, data: Shape, kernel: Shape, padding: int, statements: Sequence[Any]
) -> Iterator[tirx.PrimFunc]:
    """Yield the convolutions of bfloat16 that arguments of these shapes may be of."""
    if len(kernel) != 5 or kernel[1:3] != (_KERNEL, _KERNEL) or len(data) != 4:
        return
    if -(-data[3] // kind.products) != kernel[3] or min(data[1:3]) + 2 * padding < _KERNEL:
        return
    x = te.placeholder(int64_sizes(data), dtype="bfloat16", name="x")
    w = te.placeholder(int64_sizes(kernel), dtype="bfloat16", name="w")
    for channels in _results_of(statements, kernel, kind):
        conv = bfloat16_conv2d(
            x, w, channels=channels, strides=(1, 1), padding=(padding,) * 4, dilation=(1, 1), kind=kind
        )
        yield te.create_prim_func([x, w, conv], index_dtype_override="int64")


def _of_float32(
    data: Shape, kernel: Shape, padding: int, _statements: Sequence[Any]
) -> Iterator[tirx.PrimFunc]:
    """Yield the convolution of float32 that arguments of these shapes may be of."""
    if len(kernel) != 4 or kernel[:2] != (_KERNEL, _KERNEL) or len(data) != 4:
        return
    if data[3] != kernel[2] or min(data[1:3]) + 2 * padding < _KERNEL:
        return
    x = te.placeholder(int64_sizes(data), name="x")
    w = te.placeholder(int64_sizes(kernel), name="w")
    conv = topi.nn.conv2d(
        x,
        w,
        strides=(1, 1),
        padding=(padding,) * 4,
        dilation=(1, 1),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype="float32",
    )
    yield te.create_prim_func([x, w, conv], index_dtype_override="int64")


def compute_the_same(expected: tirx.PrimFunc, statements: Sequence[Any], params: list[Any]) -> bool:
    """Return whether statements on these buffers are those of a kernel that takes as many and writes one, by their structure."""
    wanted = statements_of(expected.body.block)
    # As parameters of both functions, the arguments cannot be confused where their shapes are equal.
    return len(wanted) == len(statements) and bool(
        tvm_ffi.structural_equal(
            _bare(wanted, list(expected.params[:-1])), _bare(statements, params), map_free_vars=True
        )
    )


def _bare(statements: Sequence[Any], params: list[Any]) -> tirx.PrimFunc:
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
    return tirx.PrimFunc(params, body)


def written_by(statement: Any) -> Any:
    """Return the buffer that the block inside a loop nest writes."""
    block = next(node for node in walk(statement) if isinstance(node, s_tir.SBlock))
    return block.writes[0].source


def statements_of(root: Any) -> list[Any]:
    """Return the loop nests of a kernel's root block, in order."""
    return list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]


def _shape_of(param: Any, dtype: str) -> Shape:
    """Return the shape of a buffer of a dtype; empty for other dtypes, scalars, and shapes that are not static."""
    shape = static_shape(param)
    return shape if shape and str(param.ty.dtype.dtype) == dtype else ()
