"""Compute a pointwise convolution and the depthwise one behind it in one kernel, where the image between them is too large for the caches.

The pattern: ``steps(depthwise(steps(pointwise(image))))`` in float32, of known sizes and constant weights, with channels last, whose image
between nothing else reads. Steps compute each element by itself, of the convolution's result, numbers, and constants per channel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.relax_graph import (
    entry_names,
    operator_name,
    rewrite_main,
    static_shape,
    tensor_dtype,
    uses_of,
    values_of,
)
from tunefarm_tuning.tvm.default_schedules.stage import Machine
from tunefarm_tuning.tvm.kernels.layers.pointwise_depthwise import (
    OPERATORS,
    PerChannel,
    PointwiseDepthwise,
    Step,
    Tiles,
    pointwise_depthwise_kernel,
)
from tunefarm_tuning.tvm.kernels.layers.written import DTYPE
from tunefarm_tuning.tvm.transform.convolutions.convolution import (
    CHANNELS_LAST,
    convolution_name,
    geometry,
    groups_of,
    is_depthwise,
)

_LEAST_BYTES = 1 << 20
"""A smaller image between stays in the caches from one kernel to the next. The same on all CPUs, since a farm shares the tasks of a model."""
_MOST_WEIGHTS = 1 << 16
"""Of the pointwise convolution: they are read again for each row, and 256 KB of them stay in the second cache."""
_WHOLE_CHANNELS = 16
"""Channels must be so many or a multiple, so that they are whole vectors on each CPU."""
_LARGEST_KERNEL = 7
_MOST_STEPS = 8
_AHEAD = 24
"""Bindings behind a convolution among which the steps on its result are looked for."""
_CORES = 4
"""Of a target that does not say how many it has."""
_STEPS = {f"relax.{name}": name for name in OPERATORS}


def fuse_depthwise(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Return the module with pairs of a pointwise and a depthwise convolution as one kernel each."""
    rewritten = rewrite_main(mod, _PairRewriter(mod, target))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(entry_names(rewritten))(rewritten)
    return result


@dataclass(frozen=True, slots=True)
class _Match:
    """A pair in the graph: the call that computes its result, its shapes, and the kernel's arguments."""

    result: Any
    convolutions: PointwiseDepthwise
    image: Any
    pointwise: NDArray[Any]
    depthwise: Any
    vectors: tuple[NDArray[Any], ...]


@relax.expr_functor.mutator
class _PairRewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, target: Target) -> None:
        super().__init__(mod)
        self._machine, cores = Machine.of(target), target.get("num-cores")
        self._cores = cores if isinstance(cores, int) else _CORES
        self._matches = [
            match
            for name in entry_names(mod)
            for match in _Graph(values_of(mod[name]), uses_of(mod[name])).pairs()
        ]

    def visit_call_(self, call: Any) -> Any:
        match = next((match for match in self._matches if match.result.same_as(call)), None)
        tiles = None if match is None else self._tiles(match.convolutions)
        if match is None or tiles is None:
            return super().visit_call_(call)
        kernel = self.builder_.add_func(
            pointwise_depthwise_kernel(match.convolutions, tiles), "pointwise_depthwise"
        )
        inputs = match.pointwise.shape[0]
        panels = match.pointwise.reshape(inputs, -1, tiles.width).transpose(1, 0, 2)
        constants = [relax.const(np.ascontiguousarray(array)) for array in (panels, *match.vectors)]
        arguments = [self.visit_expr(match.image), constants[0], match.depthwise, *constants[1:]]
        return relax.call_tir(kernel, arguments, call.ty)

    def _tiles(self, convolutions: PointwiseDepthwise) -> Tiles | None:
        return Tiles.of(
            convolutions,
            lanes=self._machine.lanes(DTYPE),
            registers=self._machine.registers,
            second_cache_bytes=self._machine.core.second_cache_bytes // 2,
            cores=self._cores,
        )


class _Graph:
    """Looks for pairs among the bindings of a function."""

    def __init__(self, values: dict[Any, Any], uses: Counter[Any]) -> None:
        self._values, self._uses = values, uses
        self._order = list(values)

    def pairs(self) -> Iterable[_Match]:
        """Yield the pairs that pay."""
        for position, variable in enumerate(self._order):
            match = self._pair(position, variable)
            if match is not None:
                yield match

    def _pair(self, position: int, depthwise: Any) -> _Match | None:
        call = self._values[depthwise]
        if not _is_depthwise(call):
            return None
        before = self._steps_before(call.args[0])
        if before is None:
            return None
        pointwise, between = before
        after = self._steps_after(position, depthwise)
        vectors: list[NDArray[Any]] = []
        first = self._values[pointwise]
        batch, *_, channels = _sizes(call)
        _, rows, columns, inputs = _sizes(first.args[0])
        height, width, *_ = _sizes(call.args[1])
        where = geometry(call)
        top, left, bottom, right = where["padding"]
        convolutions = PointwiseDepthwise(
            batch=batch,
            image=(rows, columns, inputs),
            channels=channels,
            kernel=(height, width),
            strides=(where["strides"][0], where["strides"][1]),
            padding=(top, left, bottom, right),
            between=self._written([pointwise, *between], vectors),
            after=self._written([depthwise, *after], vectors),
            vectors=len(vectors),
        )
        if convolutions.between_bytes < _LEAST_BYTES or inputs * channels > _MOST_WEIGHTS:
            return None
        return _Match(
            result=self._values[after[-1] if after else depthwise],
            convolutions=convolutions,
            image=first.args[0],
            pointwise=first.args[1].value.numpy()[0, 0],
            depthwise=call.args[1],
            vectors=tuple(vectors),
        )

    def _steps_before(self, last: Any) -> tuple[Any, list[Any]] | None:
        """Return the pointwise convolution that a value comes from, and the steps on its result, if nothing else reads them."""
        steps: list[Any] = []
        roots: list[Any] = []

        def visit(variable: Any, most_steps: int = _MOST_STEPS) -> bool:
            if _holds([*roots, *steps], variable):
                return True
            call = self._values.get(variable)
            if _is_pointwise(call):
                roots.append(variable)
                return len(roots) == 1
            if not _is_step(call) or most_steps == 0 or len(steps) >= _MOST_STEPS:
                return False
            if not all(visit(read, most_steps - 1) for read in _variables(call)):
                return False
            steps.append(variable)
            return True

        if not isinstance(last, relax.Var) or self._uses[last] != 1 or not visit(last) or len(roots) != 1:
            return None
        return (roots[0], steps) if self._is_closed([*roots, *steps], last) else None

    def _steps_after(self, position: int, root: Any) -> list[Any]:
        """Return the longest list of steps on a value of which nothing else reads any but the last."""
        steps: list[Any] = []
        best, sizes = 0, static_shape(root)
        for variable in self._order[position + 1 : position + 1 + _AHEAD]:
            call, inner = self._values[variable], [root, *steps]
            if not _is_step(call) or static_shape(variable) != sizes:
                continue
            if not all(_holds(inner, read) for read in _variables(call)):
                continue
            steps.append(variable)
            if self._is_closed([*inner, variable], variable):
                best = len(steps)
            if len(steps) == _MOST_STEPS:
                break
        return steps[:best]

    def _is_closed(self, variables: Sequence[Any], last: Any) -> bool:
        """Return whether the steps among these variables alone read all of them but the last."""
        read = Counter(read for variable in variables[1:] for read in _variables(self._values[variable]))
        return all(variable.same_as(last) or read[variable] == self._uses[variable] for variable in variables)

    def _written(self, variables: Sequence[Any], vectors: list[NDArray[Any]]) -> tuple[Step, ...]:
        """Return the steps of variables, the first of which is a convolution; add their constants per channel to `vectors`."""

        def operand(argument: Any) -> int | float | PerChannel:
            if isinstance(argument, relax.Var):
                return next(number for number, value in enumerate(variables) if value.same_as(argument))
            array = argument.value.numpy()
            if array.size == 1:
                return float(array.item())
            vectors.append(array.reshape(-1))
            return PerChannel(len(vectors) - 1)

        return tuple(
            Step(
                operator=_STEPS[operator_name(call)],
                operands=tuple(operand(argument) for argument in call.args),
            )
            for call in (self._values[variable] for variable in variables[1:])
        )


def _holds(variables: Iterable[Any], variable: Any) -> bool:
    return any(variable.same_as(other) for other in variables)


def _variables(call: Any) -> list[Any]:
    return [argument for argument in call.args if isinstance(argument, relax.Var)]


def _is_step(call: Any) -> bool:
    """Return whether a value is computed of each element by itself, of other values, numbers, and constants per channel."""
    if operator_name(call) not in _STEPS or not _variables(call):
        return False
    sizes = static_shape(call)
    return sizes is not None and all(
        tensor_dtype(argument) == DTYPE
        and (
            _is_per_channel(argument, sizes)
            if isinstance(argument, tvm.ir.GenericConst)
            else static_shape(argument) == sizes
        )
        for argument in call.args
    )


def _is_per_channel(constant: Any, sizes: Sequence[int]) -> bool:
    """Return whether a constant is a number, or has one for each of the channels, which come last."""
    of_constant = static_shape(constant)
    if of_constant is None or not sizes:
        return False
    return prod(of_constant) == 1 or prod(of_constant) == of_constant[-1] == sizes[-1]


def _is_convolution(call: Any) -> bool:
    """Return whether a value is a convolution in float32, with channels last and constant weights, of known sizes and without dilation."""
    if convolution_name(call, CHANNELS_LAST) != "relax.nn.conv2d":
        return False
    sizes, *others = (static_shape(value) for value in (call, *call.args))
    return (
        isinstance(call.args[1], tvm.ir.GenericConst)
        and sizes is not None
        and None not in others
        and all(tensor_dtype(value) == DTYPE for value in (call, *call.args))
        and max(geometry(call)["dilation"]) == 1
        and prod(sizes) > 0
        and sizes[-1] % _WHOLE_CHANNELS == 0
    )


def _is_pointwise(call: Any) -> bool:
    return (
        _is_convolution(call)
        and groups_of(call) == 1
        and _sizes(call.args[1])[:2] == (1, 1)
        and max(geometry(call)["strides"]) == 1
        and not any(geometry(call)["padding"])
    )


def _is_depthwise(call: Any) -> bool:
    if not (_is_convolution(call) and is_depthwise(call)):
        return False
    height, width, *_ = _sizes(call.args[1])
    return max(height, width) <= _LARGEST_KERNEL and height >= geometry(call)["strides"][0]


def _sizes(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor of known sizes."""
    sizes = static_shape(value)
    assert sizes is not None, "`_is_convolution` says that it is known"
    return sizes
