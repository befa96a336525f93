"""Find parallel branches: products and convolutions that read one value, and their common element-wise steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.relax_graph import operator_name, static_shape
from tunefarm_tuning.tvm.base.tir import walk

Array = NDArray[Any]

_WEIGHT_AXES = {"relax.matmul": 1, "relax.nn.conv1d": 0, "relax.nn.conv2d": 0}
"""The operators that are fused, and the axis along which their weights are concatenated."""

ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "negative", "abs"),
        *("sigmoid", "tanh", "erf", "exp", "sqrt", "rsqrt", "nn.relu", "nn.relu6", "nn.leakyrelu"),
        *("nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.softplus"),
    )
)
"""Element-wise operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An element-wise call that all branches make.

    Attributes:
        call: The call of the first branch.
        operands: The arguments of the joint call; an int is the index of an earlier value of the branch.
    """

    call: Any
    operands: tuple[Any, ...]


@dataclass(slots=True, kw_only=True)
class Branches:
    """Calls that can be fused into one, and their common steps after it.

    Attributes:
        calls: The calls, in program order.
        values: For each branch, the variables of the call and of its steps, in order. The first is None for a branch without a
            bias if the others have one: the variable of its call then stands for the sum.
        steps: The common steps: one for each value but the first.
    """

    calls: list[Any]
    values: list[list[Any]]
    steps: list[Step] = field(default_factory=list)

    @property
    def is_product(self) -> bool:
        """Whether the calls are matrix products."""
        return operator_name(self.calls[0]) == "relax.matmul"

    @property
    def axis(self) -> int:
        """The axis of the results along which the branches are concatenated."""
        return len(self.calls[0].ty.shape) - 1 if self.is_product else 1

    @property
    def widths(self) -> list[int]:
        """The size of each branch's result along `axis`."""
        return [int(call.ty.shape[self.axis]) for call in self.calls]

    def weights(self) -> Array:
        """Return the concatenated weights of all branches."""
        return np.concatenate(
            [call.args[1].value.numpy() for call in self.calls],
            axis=_WEIGHT_AXES[operator_name(self.calls[0])],
        )

    def joined(self, constants: Sequence[Array]) -> Array | None:
        """Return the constants of all branches as a constant for the joint result; None if they do not fit together."""
        first = constants[0]
        if first.size == 1 and all(value.shape == first.shape and value == first for value in constants):
            return first
        rank = len(self.calls[0].ty.shape)
        if any(value.ndim > rank or value.dtype != first.dtype for value in constants):
            return None
        parts = []
        for value, width in zip(constants, self.widths, strict=True):
            sizes = [1] * (rank - value.ndim) + list(value.shape)
            if sizes[self.axis] not in (1, width):
                return None
            shape = [*sizes[: self.axis], width, *sizes[self.axis + 1 :]]
            parts.append(np.broadcast_to(value.reshape(sizes), shape))
        other_axes = {(*part.shape[: self.axis], *part.shape[self.axis + 1 :]) for part in parts}
        return np.concatenate(parts, axis=self.axis) if len(other_axes) == 1 else None


class Block:
    """The bindings of a block, and the readers of each variable."""

    def __init__(self, block: Any) -> None:
        self._value = {binding.var: binding.value for binding in block.bindings}
        self._order = {var: number for number, var in enumerate(self._value)}
        self._readers: dict[Any, list[Any]] = {}
        for var, value in self._value.items():
            for node in walk(value):
                if isinstance(node, relax.Var):
                    self._readers.setdefault(node, []).append(var)

    def value(self, var: Any) -> Any:
        """Return the value of a variable; None if it is bound outside of the block."""
        return self._value.get(var)

    def readers(self, var: Any) -> list[Any]:
        """Return the variables whose values read a variable, in program order."""
        return self._readers.get(var, [])

    def parallel(self) -> Iterator[list[Any]]:
        """Yield groups of variables, in program order: calls that read one value and could be fused."""
        groups: dict[Any, list[Any]] = {}
        for var, value in self._value.items():
            if _can_be_combined(value):
                groups.setdefault(self._kind(value), []).append(var)
        yield from (group for group in groups.values() if len(group) > 1)

    def branches(self, roots: Sequence[Any]) -> Branches:
        """Return calls with as many common steps as possible, such that only the last value of each branch is read elsewhere."""
        branches = Branches(calls=[self._value[root] for root in roots], values=[[root] for root in roots])
        self._supply_biases(branches)
        while self._extend(branches):
            pass
        while not all(self._ends_in_its_last(values) for values in branches.values):
            branches.steps.pop()
            for values in branches.values:
                values.pop()
            if any(values == [None] for values in branches.values):
                branches.values = [[root] for root in roots]
        return branches

    def _kind(self, call: Any) -> Any:
        name = operator_name(call)
        sizes = _sizes(call.args[1])
        del sizes[_WEIGHT_AXES[name]]
        return name, self._origin(call.args[0]), str(call.attrs), str(call.args[1].ty.dtype), tuple(sizes)

    def _origin(self, data: Any) -> Any:
        """Return a key of an input that is equal for equal reshapes of one tensor."""
        value: Any = self._value.get(data)
        if operator_name(value) == "relax.reshape" and static_shape(value) is not None:
            return self._origin(value.args[0]), tuple(_sizes(value))
        return data

    def _supply_biases(self, branches: Branches) -> None:
        """Give branches without a bias one of zeros if others have a bias."""
        adds = [self._bias_of(values[0], branches.axis) for values in branches.values]
        missing = sum(add is None for add in adds)
        if missing in (0, len(adds)):
            return
        dtype = str(branches.calls[0].ty.dtype.dtype)
        biases = [
            np.zeros(width, dtype) if add is None else _constants(self._value[add])[0].reshape(-1)
            for add, width in zip(adds, branches.widths, strict=True)
        ]
        rank = len(branches.calls[0].ty.shape)
        joint = np.concatenate(biases).reshape([-1 if n == branches.axis else 1 for n in range(rank)])
        call = next(self._value[add] for add in adds if add is not None)
        branches.steps.append(Step(call=call, operands=(0, _const(joint))))
        branches.values = [
            [None, values[0]] if add is None else [values[0], add]
            for values, add in zip(branches.values, adds, strict=True)
        ]

    def _bias_of(self, root: Any, axis: int) -> Any:
        """Return the variable that adds a bias to a root: one number for each channel; None if something else reads the root."""
        readers = self.readers(root)
        if len(readers) != 1 or not isinstance(root, relax.DataflowVar):
            return None
        call = self._value[readers[0]]
        constants = _constants(call) if operator_name(call) == "relax.add" else []
        if len(constants) != 1 or _sizes(call) != _sizes(self._value[root]):
            return None
        sizes = list(constants[0].shape)
        channels = _sizes(call)[axis]
        bias_axis = axis - (len(_sizes(call)) - len(sizes))
        has_bias = bias_axis >= 0 and constants[0].size == sizes[bias_axis] == channels
        return readers[0] if has_bias else None

    def _extend(self, branches: Branches) -> bool:
        """Add another step that all branches have; return whether there is one."""
        first = branches.values[0]
        readers = {reader for value in first for reader in self.readers(value) if reader not in first}
        for reader in sorted(readers, key=self._order.__getitem__):
            matched = [self._same_step(reader, first, values) for values in branches.values]
            if all(var is not None for var in matched):
                step = self._step(branches, matched)
                if step is not None:
                    branches.steps.append(step)
                    for values, var in zip(branches.values, matched, strict=True):
                        values.append(var)
                    return True
        return False

    def _same_step(self, step: Any, first: Sequence[Any], values: Sequence[Any]) -> Any:
        """Return the variable of a branch that corresponds to `step` of the first branch; None if there is none."""
        wanted = _form(self._value[step], first)
        if wanted is None:
            return None
        for value in values:
            for reader in self.readers(value):
                if reader not in values and _is_same(_form(self._value[reader], values), wanted):
                    return reader
        return None

    def _step(self, branches: Branches, matched: Sequence[Any]) -> Step | None:
        calls = [self._value[var] for var in matched]
        if any(_sizes(call) != _sizes(root) for call, root in zip(calls, branches.calls, strict=True)):
            return None
        operands: list[Any] = []
        for number, argument in enumerate(calls[0].args):
            if isinstance(argument, relax.Var):
                operands.append(branches.values[0].index(argument))
            elif isinstance(argument, tvm.ir.GenericConst):
                joint = branches.joined([call.args[number].value.numpy() for call in calls])
                if joint is None:
                    return None
                operands.append(_const(joint))
            else:
                operands.append(argument)
        return Step(call=calls[0], operands=tuple(operands))

    def _ends_in_its_last(self, values: Sequence[Any]) -> bool:
        inner = values[:-1]
        return all(
            value is None
            or (
                isinstance(value, relax.DataflowVar)
                and all(reader in values for reader in self.readers(value))
            )
            for value in inner
        )


def _can_be_combined(value: Any) -> bool:
    if operator_name(value) not in _WEIGHT_AXES:
        return False
    data, weight = value.args
    if not isinstance(data, relax.Var) or not isinstance(weight, tvm.ir.GenericConst):
        return False
    if static_shape(data) is None or static_shape(value) is None:
        return False
    if operator_name(value) == "relax.matmul":
        return len(_sizes(weight)) == 2 and len(_sizes(data)) >= 2
    return int(value.attrs.groups) == 1 and str(value.attrs.data_layout)[:2] == "NC"


def _form(call: Any, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return an element-wise call with indices for its branch's variables, and without its constants; None for any other call."""
    if operator_name(call) not in ELEMENTWISE or static_shape(call) is None:
        return None
    form: list[Any] = [operator_name(call), call.attrs, str(call.ty.dtype)]
    for argument in call.args:
        if isinstance(argument, relax.Var):
            if argument not in values:
                return None
            form.append(values.index(argument))
        elif isinstance(argument, tvm.ir.GenericConst):
            form.append("constant")
        elif isinstance(argument, tirx.IntImm | tirx.FloatImm):
            form.append(argument)
        else:
            return None
    return tuple(form)


def _is_same(form: tuple[Any, ...] | None, wanted: tuple[Any, ...]) -> bool:
    return (
        form is not None
        and len(form) == len(wanted)
        and all(
            tvm_ffi.structural_equal(part, other) if isinstance(other, tvm_ffi.Object) else part == other
            for part, other in zip(form, wanted, strict=True)
        )
    )


def _constants(call: Any) -> list[Array]:
    return [argument.value.numpy() for argument in call.args if isinstance(argument, tvm.ir.GenericConst)]


def _const(value: Array) -> Any:
    return relax.const(np.ascontiguousarray(value), str(value.dtype))


def _sizes(expr: Any) -> list[int]:
    return [int(size) for size in expr.ty.shape]
