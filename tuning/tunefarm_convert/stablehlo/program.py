"""What a StableHLO program says, as plain values: nothing here knows of MLIR or of ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of known size and of a dtype that NumPy has, or ``bfloat16``."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TupleType:
    """Several values as one."""

    items: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that is not read.

    Attributes:
        text: The type, a stranger's text.
        why: What about it is not read.
        code: Of the error.
    """

    text: str
    why: str
    code: str


Type = TensorType | TupleType | OtherType


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation: what it takes and gives, by numbers that are unique in the program.

    Attributes:
        number: Its place in the program, counted in the order in which it is written.
        kind: Its name with its dialect: ``stablehlo.add``.
        where: What the program says of the place in its source, perhaps nothing: a stranger's text.
        attributes: As plain values: numbers, texts, lists, dictionaries, arrays.
        blocks: Its inner programs, such as a reduction's step.
    """

    number: int
    kind: str
    where: str
    operands: tuple[int, ...]
    results: tuple[tuple[int, Type], ...]
    attributes: Mapping[str, Any]
    blocks: tuple[Block, ...]

    @property
    def place(self) -> str:
        where = f" ({clean(self.where, 80)})" if self.where else ""
        return f"operation number {self.number}, {clean(self.kind, 60)}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Operations in the order in which they run, and which values they return."""

    arguments: tuple[tuple[int, Type], ...]
    operations: tuple[Operation, ...]
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A module.

    Attributes:
        functions: Its functions, by name.
        main: The one that is run.
        input_names: What the module says of its arguments, perhaps nothing: a stranger's texts.
        output_names: The same of its results.
    """

    functions: Mapping[str, Block]
    main: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


class UnsupportedFormError(Exception):
    """An operation is in a form that is not read; all of a program's are told at once."""

    def __init__(self, why: str, code: str = "unsupported-operator") -> None:
        super().__init__(why)
        self.why = why
        self.code = code


class BrokenOperandError(Exception):
    """An operation takes what an operation that is not read would have given: nothing to tell of it."""


def bad_program(message: str, **fields: Any) -> InvalidModelError:
    """Make the error for a file that is no StableHLO program."""
    return InvalidModelError(message, code="invalid-stablehlo", **fields)
