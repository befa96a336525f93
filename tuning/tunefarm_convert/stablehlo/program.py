"""A StableHLO program as plain values, without MLIR or ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean

_LISTED = 24
"""Maximum number of entries in an error's message."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a tensor of known size, with a dtype of NumPy or ``bfloat16``."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TupleType:
    """The type of a tuple of values."""

    items: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class OtherType:
    """An unsupported type: its text (a stranger's), `why` it is not supported, and the error's `code`."""

    text: str
    why: str
    code: str


Type = TensorType | TupleType | OtherType


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation; values have numbers that are unique in the program.

    Attributes:
        number: Its position in the program's text.
        kind: Its name with its dialect: ``stablehlo.add``.
        where: The name of its source location, perhaps empty: a stranger's text.
        attributes: As plain values: numbers, texts, lists, dictionaries, arrays.
        blocks: Its inner programs, such as a reduction's op.
    """

    number: int
    kind: str
    where: str
    operands: tuple[int, ...]
    results: tuple[tuple[int, Type], ...]
    attributes: Mapping[str, Any]
    blocks: tuple[Block, ...]

    @property
    def label(self) -> str:
        where = f" ({clean(self.where, 80)})" if self.where else ""
        return f"operation number {self.number}, {clean(self.kind, 60)}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Operations in the order in which they run, and the values that are returned."""

    arguments: tuple[tuple[int, Type], ...]
    operations: tuple[Operation, ...]
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A module: its functions by name, and its names of the arguments and results of `main`, perhaps empty: a stranger's texts."""

    functions: Mapping[str, Block]
    main: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


class UnsupportedFormError(Exception):
    """An operation has an unsupported form. `UnsupportedParts` collects these errors."""

    def __init__(self, why: str, code: str = "unsupported-operator") -> None:
        super().__init__(why)
        self.why = why
        self.code = code


class BrokenOperandError(Exception):
    """An operand comes from an unsupported operation. Only that operation is reported."""


class UnsupportedParts:
    """The unsupported parts of a program, in program order; one error names them all.

    Operations of one kind that are not read for the same reason are one entry, with the first place and a count.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], dict[int, str]] = {}
        self._codes: list[str] = []
        self._first: Operation | None = None

    def add(self, operation: Operation, why: str, code: str) -> None:
        """Add an operation; `why` is empty if its kind is unknown."""
        key = (operation.kind, why)
        self._places.setdefault(key, {}).setdefault(operation.number, operation.label)
        self._codes.append(code)
        self._first = self._first or operation

    def add_text(self, text: str, code: str) -> None:
        """Add a part that is no operation, such as an input's type."""
        self._places.setdefault(("", text), {})
        self._codes.append(code)

    def raise_any(self) -> None:
        """Raise an error about all parts, if there are any.

        Raises:
            InvalidModelError: With the code of the first one.
        """
        if not self._places:
            return
        entries = [_described(kind, why, places) for (kind, why), places in self._places.items()]
        more = f"; and {len(entries) - _LISTED} more kinds" if len(entries) > _LISTED else ""
        fields: dict[str, object] = {}
        if self._first is not None:
            fields["operator"] = clean(self._first.kind, 60)
            fields["node"] = str(self._first.number)
        kinds = [clean(kind, 60) for kind, _ in self._places if kind]
        raise InvalidModelError(
            f"tunefarm does not support this in the StableHLO program: {'; '.join(entries[:_LISTED])}{more}",
            code=self._codes[0],
            operators=list(dict.fromkeys(kinds))[:_LISTED],
            **fields,
        )


def _described(kind: str, why: str, places: dict[int, str]) -> str:
    if not kind:
        return why
    first = next(iter(places.values()))
    count = f", {len(places)} in all" if len(places) > 1 else ""
    return f"{first}{count}" + (f": {why}" if why else "")


def bad_program(message: str, **fields: Any) -> InvalidModelError:
    """Make the error for a file that is no StableHLO program."""
    return InvalidModelError(message, code="invalid-stablehlo", **fields)
