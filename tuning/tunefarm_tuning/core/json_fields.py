"""`JsonFields`: write dataclasses to JSON and read them, by their annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Any, Self, TypeVar, cast, get_args, get_origin, get_type_hints

OMIT_DEFAULT: Mapping[str, bool] = {"omit_default": True}
"""Metadata of a field that is left out of the JSON object while it has its default."""

_Reader = Callable[[Any], Any]
_T = TypeVar("_T")


class JsonFields:
    """Mix-in of a dataclass whose JSON object has a member for each field, in order.

    Fields may be scalars, enums, tuples, mappings, dataclasses and classes with `to_json` and `from_json`, or None if the
    annotation says so.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return fields_to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return fields_from_json(cls, data)


def fields_to_json(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON values."""
    members = {}
    for field in fields(value):
        member = getattr(value, field.name)
        if not (field.metadata.get("omit_default") and member == field.default):
            members[field.name] = _json_value(member)
    return members


def fields_from_json(cls: type[_T], data: Mapping[str, Any]) -> _T:
    """Read what `fields_to_json` wrote. A member may be missing if its field has a default; members of no field are ignored.

    Raises:
        KeyError: If a member is missing.
        TypeError: If a value has the wrong type.
        ValueError: If a value cannot be read.
    """
    members = {
        name: reader(data[name])
        for name, (reader, is_required) in _readers(cast("Any", cls)).items()
        if is_required or name in data
    }
    return cls(**members)


def _json_value(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return fields_to_json(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    return value


@cache
def _readers(cls: Any) -> dict[str, tuple[_Reader, bool]]:
    """Return each field's reader, and whether its member must be there."""
    hints = get_type_hints(cls)
    return {
        field.name: (
            _reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(cls)
    }


def _reader(annotation: Any) -> _Reader:
    """Return the function that reads a JSON value of an annotated type."""
    args = get_args(annotation)
    if NoneType in args:
        (some,) = (arg for arg in args if arg is not NoneType)
        read_some = _reader(some)
        return lambda value: None if value is None else read_some(value)
    if get_origin(annotation) is tuple:
        readers = [_reader(arg) for arg in args if arg is not Ellipsis]
        if Ellipsis in args:
            return lambda values: tuple(readers[0](value) for value in values)
        return lambda values: tuple(read(value) for read, value in zip(readers, values, strict=True))
    if get_origin(annotation) is Mapping:
        read_item = _reader(args[1])
        return lambda items: {str(name): read_item(item) for name, item in items.items()}
    if annotation is Any:
        return lambda value: value
    reader: _Reader = getattr(annotation, "from_json", annotation)
    return partial(fields_from_json, annotation) if is_dataclass(reader) else reader
