"""Store weights in fewer bytes than the network computes with; kernels widen them when they read them.

A kernel that waits for memory has time for one more conversion per vector of weights. The arithmetic, and all tensors between kernels,
stay float32.

This runs on a lowered module, so that no pass of TVM's can fold a conversion back into the constant. `FuseTIR` adds a stage to a kernel
that widens its weight, and a schedule's `compute_inline` moves the stage into the stages that read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, s_tir, te, tirx

from tunefarm_tuning.tvm.base.relax_graph import fused_kernel, rewrite_main, static_shape, tensor_dtype
from tunefarm_tuning.tvm.base.tir import REDUCES, int64_sizes, schedule_of, walk
from tunefarm_tuning.tvm.kernels.weight_packing import (
    all_kernel_calls,
    kernel_arguments,
    packable_weights,
    with_weights,
)
from tunefarm_tuning.tvm.transform.weights.formats import StoredWeight, WeightFormat, store
from tunefarm_tuning.workload.precision import Precision

_FLOAT16 = "float16"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKernel:
    """A kernel that reads some of its weights in fewer bytes.

    Attributes:
        plain: The kernel that takes them as float32. This kernel has the same arguments, and scales in front of the output.
        formats: Formats of the stored weights, by the index of the argument.
    """

    plain: tirx.PrimFunc
    formats: Mapping[int, WeightFormat]

    def widened(self, args: Sequence[Any], number: int) -> NDArray[Any]:
        """Return the float32 weight that a call of this kernel passes as an argument."""
        weight_format = self.formats.get(number)
        value: NDArray[Any] = args[number].value.numpy()
        if weight_format is None:
            return value
        if weight_format.axis is None:
            return value.astype(np.float32)
        scaled = [index for index in sorted(self.formats) if self.formats[index].axis is not None]
        scale = args[len(args) - len(scaled) + scaled.index(number)].value.numpy()
        widened: NDArray[Any] = value.astype(np.float32) * weight_format.spread(scale)
        return widened


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The formats of a network's stored weights.

    Attributes:
        stored: The number of tensors in fewer bytes.
        kept: The number of tensors that the precision cannot hold, or whose kernel cannot read them in fewer bytes.
        bytes_before: The size of the stored tensors as float32.
        bytes_after: Their size as stored, scales included.
        kernels: The kernels that read them, by the name in the module.
    """

    stored: int = 0
    kept: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    kernels: Mapping[str, StoredKernel] = field(default_factory=dict)

    def to_json(self) -> dict[str, int]:
        return {
            "stored": self.stored,
            "kept": self.kept,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
        }


def store_weights(mod: tvm.IRModule, precision: Precision) -> tuple[tvm.IRModule, Storage]:
    """Return a prepared module with the weights of its products in fewer bytes, and their formats."""
    if precision is Precision.AS_MODEL:
        return mod, Storage()
    if precision.multiplies:
        return mod, _multiplied_as(mod, precision.value)
    rewriter = _WeightStorageRewriter(mod, precision)
    rewritten = relax.transform.DeadCodeElimination(["main"])(rewrite_main(mod, rewriter))
    return rewritten, rewriter.storage


def _multiplied_as(mod: tvm.IRModule, dtype: str) -> Storage:
    """Return the numbers of weights that kernels multiply in a dtype of 16 bits, and of large ones that they multiply as float32.

    Products of float16 are those that are added up in it: a network whose file is float16 has its weights in it anyway.
    """
    narrow: dict[int, int] = {}  # sizes, by the address of the constant
    wide: set[int] = set()
    for name, args in all_kernel_calls(mod):
        large, sums = packable_weights(mod[name]), _dtypes_of_sums(mod[name])
        for number, arg in enumerate(args):
            if not isinstance(arg, tvm.ir.GenericConst):
                continue
            if tensor_dtype(arg) == dtype and (dtype != _FLOAT16 or dtype in sums.get(number, ())):
                narrow[arg.value.__chandle__()] = prod(static_shape(arg) or ())
            elif number in large and "float32" in sums.get(number, ()):
                wide.add(arg.value.__chandle__())
    elements = sum(narrow.values())
    return Storage(stored=len(narrow), kept=len(wide), bytes_before=4 * elements, bytes_after=2 * elements)


def multiplied_weights(func: tirx.PrimFunc) -> dict[int, frozenset[int]]:
    """Return the float32 weights of a kernel that a sum of products reads, as in convolutions and matrix products.

    By the index of the argument: the axes of the output channels. The sums go over the other axes.
    """
    channel_axes: dict[int, frozenset[int]] = {}
    weights = [n for n in sorted(packable_weights(func)) if str(func.params[n].ty.dtype.dtype) == "float32"]
    for number, block, read in _reads_of_sums(func, weights):
        channel_axes[number] = channel_axes.get(number, frozenset()) | _result_axes(block, read)
    return channel_axes


def _dtypes_of_sums(func: tirx.PrimFunc) -> dict[int, set[str]]:
    """Return the dtypes of the sums that read each argument of a kernel, by its index."""
    dtypes: dict[int, set[str]] = {}
    for number, block, _ in _reads_of_sums(func, range(len(func.params))):
        dtypes.setdefault(number, set()).add(str(block.writes[0].source.dtype))
    return dtypes


def _reads_of_sums(func: tirx.PrimFunc, numbers: Sequence[int]) -> Iterator[tuple[int, s_tir.SBlock, Any]]:
    """Return each read of an argument of these by a sum, and its block."""
    for node in walk(func.body) if numbers else ():
        if isinstance(node, s_tir.SBlock) and any(int(var.iter_type) == REDUCES for var in node.iter_vars):
            for read, number in product(node.reads, numbers):
                if read.source.same_as(func.params[number]):
                    yield number, node, read


def _result_axes(block: s_tir.SBlock, read: Any) -> frozenset[int]:
    results = [var.var for var in block.iter_vars if int(var.iter_type) != REDUCES]
    return frozenset(
        axis
        for axis, extent in enumerate(read.region)
        if any(node.same_as(var) for node in walk(extent.min) for var in results)
    )


@relax.expr_functor.mutator
class _WeightStorageRewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, precision: Precision) -> None:
        super().__init__(mod)
        self._mod = mod
        self._precision = precision
        # By the address of the constant and its channel axes. The constant is kept alive here, so that no address is used twice.
        self._weights: dict[tuple[int, frozenset[int]], tuple[Any, StoredWeight | None, list[Any]]] = {}
        self._readers: dict[tuple[str, tuple[tuple[int, WeightFormat], ...]], Any] = {}
        self._kernels: dict[str, StoredKernel] = {}
        self._used: set[tuple[int, frozenset[int]]] = set()

    @property
    def storage(self) -> Storage:
        used = [stored for key, (_, stored, _) in self._weights.items() if key in self._used and stored]
        return Storage(
            stored=len(used),
            kept=len(self._weights) - len(used),
            bytes_before=sum(4 * weight.arrays[0].size for weight in used),
            bytes_after=sum(array.nbytes for weight in used for array in weight.arrays),
            kernels=self._kernels,
        )

    def visit_call_(self, call: Any) -> Any:
        kernel = call.args[0] if call.args else None
        if not isinstance(kernel, tvm.ir.GlobalVar):
            return super().visit_call_(call)
        func = self._mod[kernel.name_hint]
        if not isinstance(func, tirx.PrimFunc):
            return super().visit_call_(call)
        args = [self.visit_expr(arg) for arg in kernel_arguments(call)]
        multiplied = multiplied_weights(func)
        weights = {number: self._stored(args[number], multiplied[number]) for number in sorted(multiplied)}
        stored = {number: weight for number, (weight, _) in weights.items() if weight is not None}
        formats = tuple((number, weight.format) for number, weight in stored.items())
        # A third argument holds sizes known at run time only.
        is_static = len(call.args) == 2 and all(static_shape(param) is not None for param in func.params)
        reader = self._reader(kernel.name_hint, func, formats) if formats and is_static else None
        if reader is None:
            return super().visit_call_(call)
        scales = []
        for number in stored:
            self._used.add((args[number].value.__chandle__(), multiplied[number]))
            constants = weights[number][1]
            args[number] = constants[0]
            scales += constants[1:]
        return relax.call_tir(reader, [*args, *scales], call.ty_args[0])

    def _stored(self, weight: Any, channels: frozenset[int]) -> tuple[StoredWeight | None, list[Any]]:
        key = (weight.value.__chandle__(), channels)
        if key not in self._weights:
            stored = store(weight.value.numpy(), self._precision, channels)
            constants = [relax.const(array, str(array.dtype)) for array in stored.arrays] if stored else []
            self._weights[key] = (weight, stored, constants)
        return self._weights[key][1:]

    def _reader(self, name: str, func: tirx.PrimFunc, formats: tuple[tuple[int, WeightFormat], ...]) -> Any:
        """Return the kernel that takes its weights in these formats; None if it cannot be made."""
        if (name, formats) not in self._readers:
            try:
                reader = reading_stored(func, dict(formats))
            except s_tir.ScheduleError:
                self._readers[name, formats] = None
            else:
                variable = self.builder_.add_func(reader, f"{name}_{formats[0][1].dtype}")
                self._kernels[str(variable.name_hint)] = StoredKernel(plain=func, formats=dict(formats))
                self._readers[name, formats] = variable
        return self._readers[name, formats]


def reading_stored(func: tirx.PrimFunc, formats: Mapping[int, WeightFormat]) -> tirx.PrimFunc:
    """Return a kernel of float32 weights that takes some, by argument, in `formats`, and widens them where it reads them.

    Raises:
        ScheduleError: If it reads one in a way that does not allow it.
    """
    builder = relax.BlockBuilder()
    kernel = builder.add_func(func.without_attr("global_symbol"), "kernel")
    plain = [_tensor(param) for param in func.params[:-1]]
    inputs, scales = [], []
    for number, (shape, dtype) in enumerate(plain):
        weight_format = formats.get(number)
        inputs.append(_variable(f"main{number}", shape, weight_format.dtype if weight_format else dtype))
        if weight_format is not None and weight_format.axis is not None:
            scales.append((number, _variable(f"scale{number}", (shape[weight_format.axis],), "float32")))
    widenings = {
        number: builder.add_func(_widening(plain[number][0], weight_format), f"widen{number}")
        for number, weight_format in formats.items()
    }
    arguments = [*inputs, *(scale for _, scale in scales)]

    def emit() -> Any:
        tensors = list(inputs)
        for number, widening in widenings.items():
            parts = [inputs[number], *(scale for n, scale in scales if n == number)]
            shape, dtype = plain[number]
            tensors[number] = builder.emit(
                relax.call_tir(widening, parts, out_ty=relax.TensorType(shape, dtype))
            )
        return relax.call_tir(kernel, tensors, out_ty=relax.TensorType(*_tensor(func.params[-1])))

    schedule = schedule_of(fused_kernel(builder, arguments, emit))
    for block in schedule.get_child_blocks(schedule.get_sblock("root"))[: len(formats)]:
        schedule.compute_inline(block)
    reader = schedule.mod["main"].without_attr("global_symbol").with_attr("tirx.noalias", True)
    return with_weights(reader, packable_weights(func))


def _widening(shape: Sequence[int], weight_format: WeightFormat) -> tirx.PrimFunc:
    """Return the kernel that widens a stored weight to float32."""
    sizes = int64_sizes(shape)
    stored = te.placeholder(sizes, weight_format.dtype, name="stored")
    if weight_format.axis is None:
        widened = te.compute(sizes, lambda *i: stored[i].astype("float32"), name="widened")
        return te.create_prim_func([stored, widened], index_dtype_override="int64")
    axis = weight_format.axis
    scale = te.placeholder([sizes[axis]], "float32", name="scale")
    widened = te.compute(sizes, lambda *i: stored[i].astype("float32") * scale[i[axis]], name="widened")
    return te.create_prim_func([stored, scale, widened], index_dtype_override="int64")


def _tensor(param: Any) -> tuple[list[int], str]:
    return [int(size) for size in param.ty.shape], str(param.ty.dtype.dtype)


def _variable(name: str, shape: Any, dtype: Any) -> Any:
    return relax.Var(name, relax.TensorType(shape, dtype))
