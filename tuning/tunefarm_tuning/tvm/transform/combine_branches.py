"""Finding products and convolutions that read one value, and the element-wise steps that they have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.tir import walk

Array = NDArray[Any]

_WEIGHT_AXES = {"relax.matmul": 1, "relax.nn.conv1d": 0, "relax.nn.conv2d": 0}
"""What is combined, and along which axis its weights are put side by side."""

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
        call: The first such.
        operands: Its arguments: the number of a value that the branch has made before, or what the call of all branches takes.
    """

    call: Any
    operands: tuple[Any, ...]


@dataclass(slots=True, kw_only=True)
class Branches:
    """Calls that can be one, and what they have in common after it.

    Attributes:
        calls: The calls, in program order.
        values: Of each branch the variables that the call and its steps make, in order. None for the call's where a branch has
            no bias and the others have: it then stands for the sum.
        steps: One less than the values of a branch.
    """

    calls: list[Any]
    values: list[list[Any]]
    steps: list[Step] = field(default_factory=list)

    @property
    def is_product(self) -> bool:
        """Whether they are products of matrices."""
        return _name(self.calls[0]) == "relax.matmul"

    @property
    def axis(self) -> int:
        """Along which axis of the results the branches lie side by side."""
        return len(self.calls[0].ty.shape) - 1 if self.is_product else 1

    @property
    def widths(self) -> list[int]:
        """How wide each branch is."""
        return [int(call.ty.shape[self.axis]) for call in self.calls]

    def weights(self) -> Array:
        """Return the weights of all branches."""
        return np.concatenate(
            [call.args[1].value.numpy() for call in self.calls], axis=_WEIGHT_AXES[_name(self.calls[0])]
        )

    def side_by_side(self, constants: Sequence[Array]) -> Array | None:
        """Return one constant for all branches; None where there is none."""
        first = constants[0]
        if first.size == 1 and all(one.shape == first.shape and one == first for one in constants):
            return first
        rank = len(self.calls[0].ty.shape)
        if any(one.ndim > rank or one.dtype != first.dtype for one in constants):
            return None
        spread = []
        for one, width in zip(constants, self.widths, strict=True):
            sizes = [1] * (rank - one.ndim) + list(one.shape)
            if sizes[self.axis] not in (1, width):
                return None
            shape = [*sizes[: self.axis], width, *sizes[self.axis + 1 :]]
            spread.append(np.broadcast_to(one.reshape(sizes), shape))
        others = {(*one.shape[: self.axis], *one.shape[self.axis + 1 :]) for one in spread}
        return np.concatenate(spread, axis=self.axis) if len(others) == 1 else None


class Block:
    """The bindings of a block, and who reads what."""

    def __init__(self, block: Any) -> None:
        self._value = {binding.var: binding.value for binding in block.bindings}
        self._order = {var: number for number, var in enumerate(self._value)}
        self._readers: dict[Any, list[Any]] = {}
        for var, value in self._value.items():
            for node in walk(value):
                if isinstance(node, relax.Var):
                    self._readers.setdefault(node, []).append(var)

    def value(self, var: Any) -> Any:
        """Return what a variable is bound to; None if that is elsewhere."""
        return self._value.get(var)

    def readers(self, var: Any) -> list[Any]:
        """Return the variables made of a variable, in program order."""
        return self._readers.get(var, [])

    def parallel(self) -> Iterator[list[Any]]:
        """Yield the variables of calls that read one value and could be one call, in program order."""
        groups: dict[Any, list[Any]] = {}
        for var, value in self._value.items():
            if _can_be_combined(value):
                groups.setdefault(self._kind(value), []).append(var)
        yield from (group for group in groups.values() if len(group) > 1)

    def branches(self, roots: Sequence[Any]) -> Branches:
        """Return calls with as many steps after them as all have, so that of each branch only the last value is read elsewhere."""
        found = Branches(calls=[self._value[root] for root in roots], values=[[root] for root in roots])
        self._supply_biases(found)
        while self._extend(found):
            pass
        while not all(self._ends_in_its_last(values) for values in found.values):
            found.steps.pop()
            for values in found.values:
                values.pop()
            if any(values == [None] for values in found.values):
                found.values = [[root] for root in roots]
        return found

    def _kind(self, call: Any) -> Any:
        name = _name(call)
        sizes = _sizes(call.args[1])
        del sizes[_WEIGHT_AXES[name]]
        return name, self._origin(call.args[0]), str(call.attrs), str(call.args[1].ty.dtype), tuple(sizes)

    def _origin(self, data: Any) -> Any:
        """Return the same for two variables of which one is as good as the other."""
        value = self._value.get(data)
        if isinstance(value, tvm.ir.Call) and _name(value) == "relax.reshape" and _is_static(value):
            return self._origin(value.args[0]), tuple(_sizes(value))
        return data

    def _supply_biases(self, found: Branches) -> None:
        """Let branches without a bias have one of zeros where others have one."""
        adds = [self._bias_of(values[0], found.axis) for values in found.values]
        missing = sum(add is None for add in adds)
        if missing in (0, len(adds)):
            return
        dtype = str(found.calls[0].ty.dtype.dtype)
        biases = [
            np.zeros(width, dtype) if add is None else _constants(self._value[add])[0].reshape(-1)
            for add, width in zip(adds, found.widths, strict=True)
        ]
        rank = len(found.calls[0].ty.shape)
        together = np.concatenate(biases).reshape([-1 if n == found.axis else 1 for n in range(rank)])
        call = next(self._value[add] for add in adds if add is not None)
        found.steps.append(Step(call=call, operands=(0, _const(together))))
        found.values = [
            [None, values[0]] if add is None else [values[0], add]
            for values, add in zip(found.values, adds, strict=True)
        ]

    def _bias_of(self, root: Any, axis: int) -> Any:
        """Return the variable of a sum with one number for each channel, if the root is read by nothing else."""
        readers = self.readers(root)
        if len(readers) != 1 or not isinstance(root, relax.DataflowVar):
            return None
        call = self._value[readers[0]]
        constants = _constants(call) if isinstance(call, tvm.ir.Call) and _name(call) == "relax.add" else []
        if len(constants) != 1 or _sizes(call) != _sizes(self._value[root]):
            return None
        sizes = list(constants[0].shape)
        wanted = _sizes(call)[axis]
        place = axis - (len(_sizes(call)) - len(sizes))
        return readers[0] if place >= 0 and constants[0].size == sizes[place] == wanted else None

    def _extend(self, found: Branches) -> bool:
        """Add a step, if there is another one that all branches have."""
        first = found.values[0]
        readers = {reader for value in first for reader in self.readers(value) if reader not in first}
        for reader in sorted(readers, key=self._order.__getitem__):
            matched = [self._same_step(reader, first, values) for values in found.values]
            if all(one is not None for one in matched):
                step = self._step(found, matched)
                if step is not None:
                    found.steps.append(step)
                    for values, one in zip(found.values, matched, strict=True):
                        values.append(one)
                    return True
        return False

    def _same_step(self, step: Any, first: Sequence[Any], values: Sequence[Any]) -> Any:
        """Return the variable of a branch that is to it what `step` is to the first branch; None if there is none."""
        wanted = _form(self._value[step], first)
        if wanted is None:
            return None
        for value in values:
            for reader in self.readers(value):
                if reader not in values and _is_same(_form(self._value[reader], values), wanted):
                    return reader
        return None

    def _step(self, found: Branches, matched: Sequence[Any]) -> Step | None:
        calls = [self._value[var] for var in matched]
        if any(_sizes(call) != _sizes(root) for call, root in zip(calls, found.calls, strict=True)):
            return None
        operands: list[Any] = []
        for number, argument in enumerate(calls[0].args):
            if isinstance(argument, relax.Var):
                operands.append(found.values[0].index(argument))
            elif isinstance(argument, tvm.ir.GenericConst):
                together = found.side_by_side([call.args[number].value.numpy() for call in calls])
                if together is None:
                    return None
                operands.append(_const(together))
            else:
                operands.append(argument)
        return Step(call=calls[0], operands=tuple(operands))

    def _ends_in_its_last(self, values: Sequence[Any]) -> bool:
        inner = values[:-1]
        return all(
            value is None
            or (isinstance(value, relax.DataflowVar) and all(one in values for one in self.readers(value)))
            for value in inner
        )


def _can_be_combined(value: Any) -> bool:
    if not isinstance(value, tvm.ir.Call) or _name(value) not in _WEIGHT_AXES:
        return False
    data, weight = value.args
    if not isinstance(data, relax.Var) or not isinstance(weight, tvm.ir.GenericConst):
        return False
    if not (_is_static(data) and _is_static(value)):
        return False
    if _name(value) == "relax.matmul":
        return len(_sizes(weight)) == 2 and len(_sizes(data)) >= 2
    return int(value.attrs.groups) == 1 and str(value.attrs.data_layout)[:2] == "NC"


def _form(call: Any, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return an element-wise call with its branch's variables as numbers, its constants left out; None for another call."""
    if not isinstance(call, tvm.ir.Call) or _name(call) not in ELEMENTWISE or not _is_static(call):
        return None
    form: list[Any] = [_name(call), call.attrs, str(call.ty.dtype)]
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
            tvm_ffi.structural_equal(one, other) if isinstance(other, tvm_ffi.Object) else one == other
            for one, other in zip(form, wanted, strict=True)
        )
    )


def _constants(call: Any) -> list[Array]:
    return [argument.value.numpy() for argument in call.args if isinstance(argument, tvm.ir.GenericConst)]


def _const(value: Array) -> Any:
    return relax.const(np.ascontiguousarray(value), str(value.dtype))


def _name(call: Any) -> str:
    return str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""


def _is_static(expr: Any) -> bool:
    shape = getattr(expr.ty, "shape", None)
    return shape is not None and all(isinstance(size, tirx.IntImm) for size in shape)


def _sizes(expr: Any) -> list[int]:
    return [int(size) for size in expr.ty.shape]
