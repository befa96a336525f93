"""Weights in fewer bytes than the network computes with; each kernel widens them where it reads them.

What a convolution or a product of matrices reads its weights for is to multiply them: a conversion more per vector of them is
nothing where it waits for memory. The arithmetic, and all that goes from kernel to kernel, stays float32.

This is done on a lowered module, so that no pass of TVM's can fold a conversion back into the constant. A kernel gets a stage
that widens its weight, by `FuseTIR`, and the stage is moved into what reads it, by a schedule's `compute_inline`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, s_tir, te, tirx

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.kernels.weight_packing import kernel_arguments, marked, with_weights
from tunefarm_tuning.tvm.transform.weights.forms import Form, Stored, store
from tunefarm_tuning.workload.precision import Precision

_REDUCES = 2  # tirx.IterVar's CommReduce


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKernel:
    """A kernel that takes some of its weights in fewer bytes.

    Attributes:
        plain: The kernel that takes them as float32. Its arguments are this one's but for the scales, which come last before
            the output.
        forms: By the number of the argument.
    """

    plain: tirx.PrimFunc
    forms: Mapping[int, Form]

    def widened(self, args: Sequence[Any], number: int) -> NDArray[Any]:
        """Return a weight that a call of it hands over, as it computes with it."""
        form = self.forms.get(number)
        value: NDArray[Any] = args[number].value.numpy()
        if form is None:
            return value
        if form.axis is None:
            return value.astype(np.float32)
        scaled = [one for one in sorted(self.forms) if self.forms[one].axis is not None]
        scale = args[len(args) - len(scaled) + scaled.index(number)].value.numpy()
        widened: NDArray[Any] = value.astype(np.float32) * form.spread(scale)
        return widened


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What became of a network's weights.

    Attributes:
        stored: Tensors in fewer bytes.
        kept: Tensors that the precision cannot hold, or whose kernel cannot be made to read them so.
        bytes_before: Of those that were stored.
        bytes_after: Of the same, scales included.
        kernels: By the name in the module.
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
    """Return a prepared module with its large weights in fewer bytes, and what became of them."""
    if precision is Precision.AS_MODEL:
        return mod, Storage()
    storing = _Storing(mod, precision)
    made = relax.transform.DeadCodeElimination(["main"])(rewrite_main(mod, storing))
    return made, storing.storage


def multiplied_weights(func: tirx.PrimFunc) -> dict[int, frozenset[int]]:
    """Return which of a kernel's float32 weights a sum of products reads: those of convolutions and products of matrices.

    Returns:
        For each of them, the axes that results lie along; the sums go over its others.
    """
    found: dict[int, frozenset[int]] = {}
    weights = [n for n in sorted(marked(func)) if str(func.params[n].ty.dtype.dtype) == "float32"]
    if not weights:
        return found
    for node in walk(func.body):
        if isinstance(node, s_tir.SBlock) and any(int(one.iter_type) == _REDUCES for one in node.iter_vars):
            for read in node.reads:
                for number in weights:
                    if read.source.same_as(func.params[number]):
                        found[number] = found.get(number, frozenset()) | _result_axes(node, read)
    return found


def _result_axes(block: s_tir.SBlock, read: Any) -> frozenset[int]:
    results = [one.var for one in block.iter_vars if int(one.iter_type) != _REDUCES]
    return frozenset(
        axis
        for axis, place in enumerate(read.region)
        if any(node.same_as(var) for node in walk(place.min) for var in results)
    )


@relax.expr_functor.mutator
class _Storing(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, precision: Precision) -> None:
        super().__init__(mod)
        self._mod = mod
        self._precision = precision
        # By the address of the constant, which is kept alive here, so that no address is used twice, and by its channels.
        self._weights: dict[tuple[int, frozenset[int]], tuple[Any, Stored | None, list[Any]]] = {}
        self._made: dict[tuple[str, tuple[tuple[int, Form], ...]], Any] = {}
        self._kernels: dict[str, StoredKernel] = {}
        self._used: set[tuple[int, frozenset[int]]] = set()

    @property
    def storage(self) -> Storage:
        used = [stored for key, (_, stored, _) in self._weights.items() if key in self._used and stored]
        return Storage(
            stored=len(used),
            kept=len(self._weights) - len(used),
            bytes_before=sum(4 * one.arrays[0].size for one in used),
            bytes_after=sum(array.nbytes for one in used for array in one.arrays),
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
        stored = {number: one for number, (one, _) in weights.items() if one is not None}
        forms = tuple((number, one.form) for number, one in stored.items())
        static = len(call.args) == 2 and _is_static(func)  # a third argument are sizes known at run time only
        reader = self._reader(kernel.name_hint, func, forms) if forms and static else None
        if reader is None:
            return super().visit_call_(call)
        scales = []
        for number in stored:
            self._used.add((args[number].value.__chandle__(), multiplied[number]))
            constants = weights[number][1]
            args[number] = constants[0]
            scales += constants[1:]
        return relax.call_tir(reader, [*args, *scales], call.ty_args[0])

    def _stored(self, weight: Any, channels: frozenset[int]) -> tuple[Stored | None, list[Any]]:
        key = (weight.value.__chandle__(), channels)
        if key not in self._weights:
            stored = store(weight.value.numpy(), self._precision, channels)
            constants = [_constant(array) for array in stored.arrays] if stored else []
            self._weights[key] = (weight, stored, constants)
        return self._weights[key][1:]

    def _reader(self, name: str, func: tirx.PrimFunc, forms: tuple[tuple[int, Form], ...]) -> Any:
        """Return the kernel that takes its weights in such forms; None where none can be made."""
        if (name, forms) not in self._made:
            try:
                reading = reading_stored(func, dict(forms))
            except s_tir.ScheduleError:
                self._made[name, forms] = None
            else:
                variable = self.builder_.add_func(reading, f"{name}_{forms[0][1].dtype}")
                self._kernels[str(variable.name_hint)] = StoredKernel(plain=func, forms=dict(forms))
                self._made[name, forms] = variable
        return self._made[name, forms]


def reading_stored(func: tirx.PrimFunc, forms: Mapping[int, Form]) -> tirx.PrimFunc:
    """Return a kernel that takes some of its arguments stored, and widens them where it reads them.

    Raises:
        ScheduleError: If it reads one in a way that does not allow it.
    """
    builder = relax.BlockBuilder()
    kernel = builder.add_func(func.without_attr("global_symbol"), "kernel")
    plain = [_tensor(param) for param in func.params[:-1]]
    inputs, scales = [], []
    for number, (shape, dtype) in enumerate(plain):
        form = forms.get(number)
        inputs.append(_variable(f"main{number}", shape, form.dtype if form else dtype))
        if form is not None and form.axis is not None:
            scales.append((number, _variable(f"scale{number}", (shape[form.axis],), "float32")))
    widenings = {
        number: builder.add_func(_widening(plain[number][0], form), f"widen{number}")
        for number, form in forms.items()
    }
    arguments = [*inputs, *(scale for _, scale in scales)]
    with builder.function("fused", arguments, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            given = list(inputs)
            for number, widening in widenings.items():
                parts = [inputs[number], *(scale for n, scale in scales if n == number)]
                shape, dtype = plain[number]
                given[number] = builder.emit(
                    relax.call_tir(widening, parts, out_ty=relax.TensorType(shape, dtype))
                )
            shape, dtype = _tensor(func.params[-1])
            result = builder.emit_output(relax.call_tir(kernel, given, out_ty=relax.TensorType(shape, dtype)))
        builder.emit_func_output(result)
    whole = [_variable(f"given{n}", one.ty.shape, one.ty.dtype) for n, one in enumerate(arguments)]
    with builder.function("main", whole):
        with builder.dataflow():
            result = builder.emit_output(tvm.ir.Call(builder.get().get_global_var("fused"), whole))
        builder.emit_func_output(result)
    fused = relax.transform.FuseTIR()(builder.get())["fused"]
    schedule = s_tir.Schedule(
        tvm.IRModule({"main": fused.with_attr("global_symbol", "main")}),
        debug_mask=0,
        error_render_level="none",
    )
    for block in schedule.get_child_blocks(schedule.get_sblock("root"))[: len(forms)]:
        schedule.compute_inline(block)
    made = schedule.mod["main"].without_attr("global_symbol").with_attr("tirx.noalias", True)
    return with_weights(made, marked(func))


def _widening(shape: Sequence[int], form: Form) -> tirx.PrimFunc:
    sizes = [tirx.IntImm("int64", size) for size in shape]
    given = te.placeholder(sizes, form.dtype, name="stored")
    if form.axis is None:
        widened = te.compute(sizes, lambda *i: given[i].astype("float32"), name="widened")
        return te.create_prim_func([given, widened], index_dtype_override="int64")
    axis = form.axis
    scale = te.placeholder([sizes[axis]], "float32", name="scale")
    widened = te.compute(sizes, lambda *i: given[i].astype("float32") * scale[i[axis]], name="widened")
    return te.create_prim_func([given, scale, widened], index_dtype_override="int64")


def _is_static(func: tirx.PrimFunc) -> bool:
    """Whether all arguments of a kernel are tensors of known shapes."""
    shapes = [getattr(param.ty, "shape", None) for param in func.params]
    return all(shape is not None and all(isinstance(size, tirx.IntImm) for size in shape) for shape in shapes)


def _tensor(param: Any) -> tuple[list[int], str]:
    return [int(size) for size in param.ty.shape], str(param.ty.dtype.dtype)


def _variable(name: str, shape: Any, dtype: Any) -> Any:
    return relax.Var(name, relax.TensorType(shape, dtype))


def _constant(array: NDArray[Any]) -> Any:
    return relax.const(array, str(array.dtype))
