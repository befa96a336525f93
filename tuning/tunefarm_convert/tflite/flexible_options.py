"""The options of custom operators, in the format of FlexBuffers."""

from __future__ import annotations

import math
from typing import Any

from tunefarm_convert.tflite.converter import OperatorContext

_MAX_LIST = 1 << 16


class FlexibleOptions:
    """A map of numbers and lists of numbers. Only what is asked for is read.

    Args:
        op: The operator.
    """

    def __init__(self, op: OperatorContext) -> None:
        from flatbuffers import flexbuffers

        self._op = op
        self._map = flexbuffers.GetRoot(op.operator.custom).AsMap
        self._names = {key.AsKey for key in self._map.Keys} if len(self._map) < _MAX_LIST else set()

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer.

        Raises:
            InvalidModelError: invalid-tflite, if it is missing and there is no default.
        """
        return int(self._read(name, default, "AsInt"))

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number.

        Raises:
            InvalidModelError: invalid-tflite, if it is missing and there is no default.
        """
        value = float(self._read(name, default, "AsFloat"))
        if not math.isfinite(value):
            raise self._op.bad_file(f"its option {name} is not a number to compute with")
        return value

    def integers(self, name: str) -> list[int]:
        """Return a list of integers.

        Raises:
            InvalidModelError: invalid-tflite, if it is missing.
        """
        reference = self._read(name, None, "")
        vector = reference.AsTypedVector if reference.IsTypedVector else reference.AsVector
        if len(vector) > _MAX_LIST:
            raise self._op.bad_file(f"its option {name} has {len(vector)} elements")
        return [vector[i].AsInt for i in range(len(vector))]

    def _read(self, name: str, default: Any, kind: str) -> Any:
        if name not in self._names:
            if default is None:
                raise self._op.bad_file(f"its option {name} is missing")
            return default
        reference = self._map[name]
        return getattr(reference, kind) if kind else reference
