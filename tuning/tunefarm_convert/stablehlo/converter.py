"""One operation on its way to ONNX, with what every converter needs."""

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
    """An operation, its operands, and the conversion's emitter.

    Attributes:
        emit: The conversion's.
        outer: The values that are known where the operation stands, by their numbers.
        run: Runs an inner program on values, and returns what it returns.
        call: Runs a function of the program by its name.
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
        assert isinstance(type_, TensorType)  # others are refused before
        return type_

    def constant(self, position: int, what: str) -> NDArray[Any]:
        """Return an operand that must be known."""
        data = self.operands[position].data
        if data is None:
            if self.operands[position].broken:
                self.emit.name(self.operands[position])
            raise UnsupportedFormError(
                f"{what} is computed by the program; tunefarm takes constant ones only"
            )
        return data

    def apply(self, operator: str, *values: Value, dtype: str | None = None, **attributes: Any) -> Value:
        """Apply an ONNX operator that computes each element by itself."""
        return self.emit.apply(operator, *values, dtype=dtype, **attributes)

    def like(self, value: Value, number: Any) -> Value:
        """Return one number, as large as a value."""
        return splat(number, value.dtype, value.shape)


Converter = Callable[[OperatorContext], Sequence[Value]]
