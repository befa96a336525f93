"""Random changes of JSON documents, for readers that must refuse nonsense by name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

ODD_TEXTS = (
    "",
    "\ud800",
    "\0",
    "é" * 40,
    "x" * 3000,
    "NaN",
    "../..",
    "object",
    "V8",
    "llvm",
    "cuda",
    "host",
    "-1",
)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-1, 3),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(ODD_TEXTS),
)


def any_json(*keys: str) -> st.SearchStrategy[Any]:
    """Return a strategy for small JSON values; objects have some of these keys."""
    return st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*keys, "odd"]), inner, max_size=3)
        ),
        max_leaves=4,
    )


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every part of a JSON value; the whole comes first."""
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*way, key))


@st.composite
def mutated(draw: st.DrawFn, value: Any, *keys: str) -> Any:
    """Return `value` with up to three of its parts replaced, removed or added."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(0, 3))):
        way = draw(st.sampled_from(list(places(value))))
        if not way:
            return draw(any_json(*keys))
        holder = value
        for key in way[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "replace", "remove", "add"])):
            case "replace":
                holder[way[-1]] = draw(any_json(*keys))
            case "remove":
                del holder[way[-1]]
            case "add" if isinstance(holder, dict):
                holder[draw(st.sampled_from([*keys, "odd", *ODD_TEXTS]))] = draw(any_json(*keys))
    return value
