"""Keyword arguments that several methods of the client take: written once, with their meanings, and shown at each method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from textwrap import fill
from typing import Any, ForwardRef, TypeVar, get_type_hints

F = TypeVar("F", bound=Callable[..., Any])


def named_keywords(kind: Any, meaning: Callable[[str], str], placeholder: str) -> Callable[[F], F]:
    """Name the members of a `TypedDict` in the signature and in the docstring of a method that takes them as ``**keywords``.

    ``help``, editors and the reference then show each with its meaning.

    Args:
        kind: The `TypedDict`.
        meaning: Returns what a member means.
        placeholder: The line of the docstring's arguments that the members take the place of.
    """
    hints: Mapping[str, ForwardRef] = kind.__annotations__

    def show(method: F) -> F:
        shown = inspect.signature(method)
        named = [
            parameter
            for parameter in shown.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        keywords = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint.__forward_arg__
            )
            for name, hint in hints.items()
        ]
        method.__signature__ = shown.replace(parameters=[*named, *keywords])  # type: ignore[attr-defined]
        lines = [
            fill(
                f"{name}: {meaning(name)}",
                108,
                initial_indent=" " * 12,
                subsequent_indent=" " * 16,
            )
            for name in hints
        ]
        method.__doc__ = (method.__doc__ or "").replace(" " * 12 + placeholder, "\n".join(lines))
        return method

    return show


def check_names(keywords: Mapping[str, object], kind: Any) -> None:
    """Check that keywords are those of `kind`.

    Raises:
        TypeError: If there is no such keyword.
    """
    known = list(get_type_hints(kind))
    if unknown := sorted(set(keywords) - set(known)):
        near = get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the names here are {', '.join(known)}"
        raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}: {hint}")
