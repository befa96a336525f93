"""Reads the server's JSON into frozen values: `Result` looks at a class's own annotations and defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from tunefarm.client.errors import ProtocolError

Reader = Callable[[Any], Any]


class Result:
    """Base of the dataclasses that the client returns. To read one more member of an answer, add one more field.

    A field is read from the member of the same name and checked against its annotation: ``str``, ``int``, ``float``,
    ``bool``, another `Result`, ``tuple`` or ``Mapping`` of these, each perhaps ``| None``. Where the member is missing or
    null, as an older server leaves it, the field's default holds; a field without a default is then an error. Members
    without a field are ignored, as a newer server may send them.
    """

    __slots__ = ()

    @classmethod
    def read(cls, data: object) -> Self:
        """Return the value that the server's JSON holds.

        Raises:
            ProtocolError: ``bad-answer`` if the JSON is not an object, or a member is missing or of another type.
        """
        name = _words(cls.__name__)
        if not isinstance(data, dict):
            raise ProtocolError(f"the server's {name} is not a JSON object", code="bad-answer")
        members = cls._members(data)
        values: dict[str, Any] = {}
        for attribute, (reader, is_required) in _readers(cls).items():  # type: ignore[arg-type]  # (mypy does not take a class for hashable)
            member = data if attribute == "raw" else members.get(attribute)
            if member is None and not is_required:
                continue
            try:
                values[attribute] = reader(member)
            except _OtherTypeError as error:
                raise ProtocolError(
                    f"the server's {name} has no {error} {attribute!r}", code="bad-answer"
                ) from error
        return cls(**values)

    @classmethod
    def _members(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the members to read. A class overrides this where a field is worked out from other members."""
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Result):
    """A result that keeps the whole answer of the server in `raw`."""

    raw: Mapping[str, Any] = field(repr=False)


class _OtherTypeError(Exception):
    """Raised if a member does not have the annotated type; the message names that type."""


@cache
def _readers(kind: type[Any]) -> Mapping[str, tuple[Reader, bool]]:
    """Return each field's reader, and whether the member is required."""
    hints = get_type_hints(kind)
    return {
        field.name: (
            _reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
    }


def _reader(hint: Any) -> Reader:
    """Return a function that checks a member against a type annotation."""
    if hint is Any:
        return lambda member: member
    if isinstance(hint, type) and issubclass(hint, Result):
        return hint.read
    if hint in _PLAIN_READERS:
        return _PLAIN_READERS[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and NoneType in args:
        return _nullable(_reader(Union[tuple(arg for arg in args if arg is not NoneType)]))  # noqa: UP007
    if origin in (Union, UnionType):
        return _either_reader([_reader(arg) for arg in args])
    if origin is tuple and args[-1] is Ellipsis:
        return _list_reader(_reader(args[0]))
    if origin is tuple:
        return _row_reader([_reader(arg) for arg in args])
    if origin is Mapping:
        return _object_reader(_reader(args[1]))
    raise TypeError(f"a result cannot have a field of type {hint}")


def _text(member: Any) -> str:
    if not isinstance(member, str):
        raise _OtherTypeError("text")
    return member


def _number(member: Any) -> float:
    if isinstance(member, bool) or not isinstance(member, int | float):
        raise _OtherTypeError("number")
    return float(member)


def _whole_number(member: Any) -> int:
    if not _number(member).is_integer():
        raise _OtherTypeError("whole number")
    return int(member)


def _boolean(member: Any) -> bool:
    if not isinstance(member, bool):
        raise _OtherTypeError("boolean")
    return member


def _number_as_sent(member: Any) -> int | float:
    _number(member)
    return member  # type: ignore[no-any-return]


_PLAIN_READERS: Mapping[Any, Reader] = {
    str: _text, float: _number, int: _whole_number, bool: _boolean, int | float: _number_as_sent
}  # fmt: skip


def _nullable(read: Reader) -> Reader:
    return lambda member: None if member is None else read(member)


def _either_reader(readers: list[Reader]) -> Reader:
    def read_either(member: Any) -> Any:
        for read in readers[:-1]:
            with suppress(_OtherTypeError):
                return read(member)
        return readers[-1](member)

    return read_either


def _list_reader(read: Reader) -> Reader:
    def read_list(member: Any) -> tuple[Any, ...]:
        if not isinstance(member, list):
            raise _OtherTypeError("list")
        return tuple(read(item) for item in member)

    return read_list


def _row_reader(readers: list[Reader]) -> Reader:
    def read_row(member: Any) -> tuple[Any, ...]:
        if not isinstance(member, list) or len(member) != len(readers):
            raise _OtherTypeError(f"list of {len(readers)}")
        return tuple(read(item) for read, item in zip(readers, member, strict=True))

    return read_row


def _object_reader(read: Reader) -> Reader:
    def read_object(member: Any) -> Mapping[str, Any]:
        if not isinstance(member, dict):
            raise _OtherTypeError("object")
        return {name: read(value) for name, value in member.items()}

    return read_object


def _words(class_name: str) -> str:
    """Return ``"enrolment token"`` for ``"EnrolmentToken"``."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", class_name).lower()
