"""Which axes of a tensor become which in a reshape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Axes side by side that hold as many elements before as after; those of size 1 may be alone."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def groups_of(before: Sequence[int], after: Sequence[int]) -> list[Group] | None:
    """Return the smallest groups, in order; None for a tensor without elements."""
    if 0 in (*before, *after):
        return None
    groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        if i < len(before) and j < len(after) and before[i] == after[j]:
            groups.append(Group(before=(i,), after=(j,)))
            i, j = i + 1, j + 1
        elif i < len(before) and before[i] == 1:
            groups.append(Group(before=(i,), after=()))
            i += 1
        elif j < len(after) and after[j] == 1:
            groups.append(Group(before=(), after=(j,)))
            j += 1
        else:
            start, first = i, j
            left, right = before[i], after[j]
            i, j = i + 1, j + 1
            while left != right:
                if left < right:
                    left, i = left * before[i], i + 1
                else:
                    right, j = right * after[j], j + 1
            groups.append(Group(before=tuple(range(start, i)), after=tuple(range(first, j))))
    return groups
