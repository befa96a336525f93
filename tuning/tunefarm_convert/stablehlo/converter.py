"""The context of a converter: an operation, its operands, and the ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.stablehlo.program import Block, Operation, TensorType, UnsupportedFormError
from tunefarm_convert.stablehlo.values import Emitter, Value, Values, splat


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """An operation to convert.

    Attributes:
        emit: Makes ONNX nodes of values.
        outer: The values in scope at the operation, by their numbers.
        run: Converts a region for given arguments, and returns its results.
        call: Converts a call of a function, by name and arguments, and returns its results.
    """

    operation: Operation
    operands: Values
    emit: Emitter
    outer: Mapping[int, Value]
    run: Callable[[Block, Values], Values]
    call: Callable[[str, Values], Values]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the operation."""
        return self.operation.attributes.get(name, default)

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an attribute that is a list of integers."""
        numbers = self.attribute(name, default)
        if numbers is None:
            raise UnsupportedFormError(f"it has no {name}")
        return [int(number) for number in np.asarray(numbers).reshape(-1).tolist()]

    def result(self, position: int = 0) -> TensorType:
        """Return the type of a result."""
        type_ = self.operation.results[position][1]
        assert isinstance(type_, TensorType)  # other types are refused before
        return type_

    def constant(self, position: int, operand: str) -> NDArray[Any]:
        """Return the elements of an operand that must be constant; messages call it `operand`.

        Raises:
            UnsupportedFormError: If the program computes it.
        """
        data = self.operands[position].data
        if data is None:
            if self.operands[position].broken:
                self.emit.name(self.operands[position])
            raise UnsupportedFormError(
                f"{operand} is computed by the program; tunefarm supports constant ones only"
            )
        return data

    def apply(self, operator: str, *values: Value, dtype: str | None = None, **attributes: Any) -> Value:
        """Apply an elementwise ONNX operator."""
        return self.emit.apply(operator, *values, dtype=dtype, **attributes)

    def like(self, value: Value, number: Any) -> Value:
        """Return a constant of a value's shape and dtype whose elements are all one number."""
        return splat(number, value.dtype, value.shape)


Converter = Callable[[OperatorContext], Sequence[Value]]
