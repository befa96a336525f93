"""What sizes follow from each other in the inputs of a network: sums in names, and masks over a cache and new words."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tunefarm_tuning.artifact.sizes import value_of

Key = str | tuple[str, int]
"""An open dimension: its name, or the input and the position of one that has none."""

PAST = re.compile(r"past|cache")
_MASK = re.compile(r"mask")
_TOTAL = re.compile(r"total|^kv_|full")
_MAX_TEXT = 120
_MAX_SIZE = (1 << 31) - 1
_SIGNS: Mapping[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


def names_in(key: Key) -> list[str]:
    """Return the names that a dimension's name adds up or multiplies, as exporters write it; empty if it is no such text."""
    tree = _formula(key)
    if tree is None:
        return []
    return sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})


def size_of(key: Key, sizes: Mapping[Key, int]) -> int | None:
    """Return the size that a dimension's name computes of others; None if it does not, or one of them is not known."""
    formula, names = formula_of(key), names_in(key)
    known = {name: sizes[name] for name in names if name in sizes}
    size = value_of(formula, known) if formula is not None and len(known) == len(names) else None
    return size if size is not None and 0 < size <= _MAX_SIZE else None


def formula_of(key: Key) -> Any:
    """Return what a dimension's name computes as an expression of `artifact.sizes`; None if it is no such text."""
    tree = _formula(key)
    return None if tree is None else _plain(tree)


def totals(shapes: Mapping[str, Sequence[int | Key]], integers: set[str]) -> dict[Key, tuple[Key, Key]]:
    """Return the dimensions of masks that go over a cache and the new words, each with these two.

    Args:
        shapes: Of the inputs.
        integers: The inputs of integers, among them the words.
    """
    past = next(
        (
            key
            for name, shape in shapes.items()
            if PAST.search(name.lower()) and len(shape) >= 3
            for key in list(shape)[1:]
            if not isinstance(key, int) and key != shape[0]
        ),
        None,
    )
    words = next(
        (
            shape[1]
            for name, shape in shapes.items()
            if name in integers
            and len(shape) == 2
            and not _MASK.search(name.lower())
            and not isinstance(shape[1], int)
        ),
        None,
    )
    if past is None or words is None or past == words:
        return {}
    return {
        shape[-1]: (past, words)
        for name, shape in shapes.items()
        if shape and not isinstance(shape[-1], int) and shape[-1] not in (past, words)
        if _MASK.search(name.lower()) or (isinstance(shape[-1], str) and _TOTAL.search(shape[-1].lower()))
    }


def _formula(key: Key) -> ast.expr | None:
    """Return a dimension's name as a formula; None if it is a name alone, or no formula."""
    if not isinstance(key, str) or len(key) > _MAX_TEXT:
        return None
    try:
        tree = ast.parse(key.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None if isinstance(tree, ast.Name | ast.Constant) else tree


def _plain(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Constant):
        return tree.value if type(tree.value) is int and abs(tree.value) <= _MAX_SIZE else None
    if isinstance(tree, ast.Name):
        return tree.id
    if isinstance(tree, ast.BinOp) and type(tree.op) in _SIGNS:
        parts = [_plain(part) for part in (tree.left, tree.right)]
        return None if None in parts else [_SIGNS[type(tree.op)], *parts]
    return None
