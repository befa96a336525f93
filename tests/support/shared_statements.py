"""Compile each SQL statement once per process: a pytest plugin.

A farm has one engine, which remembers the statements that it compiled. Each test has an engine of its own, and compiling the
same statements anew took a third of the processor seconds of a test of the farm.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

_STATEMENTS: LRUCache[Any, Any] = LRUCache(4000)


def _kind(dialect: DefaultDialect) -> tuple[Any, ...]:
    """Return what a compiled statement depends on: tests have one version of each database's server."""
    return (
        type(dialect),
        getattr(dialect, "_json_serializer", None),
        getattr(dialect, "_json_deserializer", None),
    )


def _is_alike(dialect: DefaultDialect, other: object) -> bool:
    return isinstance(other, DefaultDialect) and _kind(dialect) == _kind(other)


def _hash(dialect: DefaultDialect) -> int:
    return hash(_kind(dialect))


# The dialect, a part of each remembered statement's key, is an engine's own, too.
Engine._compiled_cache = property(lambda _: _STATEMENTS, lambda _, __: None)  # type: ignore[assignment]
DefaultDialect.__eq__ = _is_alike  # type: ignore[assignment]
DefaultDialect.__hash__ = _hash  # type: ignore[assignment]
