"""Search of the farm's records by operator and by the shape of an argument."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Page, Record
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

MOST_WORKLOADS = 500
"""At most this many workloads are searched."""

# Between two numbers the text can be read in one way alone: else a search for many spaces would take hours.
_SHAPE = re.compile(r"\[?\s*\d{1,10}(?:(?:\s*[x×*,]\s*|\s+)\d{1,10}){0,15}\s*\]?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSearch:
    """The conditions of a search.

    Attributes:
        filter: Conditions on the records themselves.
        operator: Part of the kernel's name, or the beginning of its key; empty for any.
        shape: Adjacent dimensions of one of the kernel's arguments; empty for any.
    """

    filter: RecordFilter
    operator: str = ""
    shape: tuple[int, ...] = ()

    @property
    def is_by_kernel(self) -> bool:
        return bool(self.operator or self.shape)


def parse_shape(text: str) -> tuple[int, ...]:
    """Read ``1x56x56x64`` (or with ``×``, commas or spaces); empty text is no shape.

    Raises:
        InvalidInputError: ``bad-shape``.
    """
    if not text.strip():
        return ()
    if not _SHAPE.fullmatch(text.strip()):
        raise InvalidInputError(
            f"{clean(text)!r} is not a shape: write it like 1x56x56x64, or a part of it", code="bad-shape"
        )
    return tuple(int(number) for number in re.findall(r"\d+", text))


def find_records(
    repos: Repositories, search: RecordSearch, *, cursor: str | None, limit: int
) -> Page[Record]:
    """Return the records, newest first, failures included."""
    keys = _keys(repos, search) if search.is_by_kernel else None
    return repos.records.query(search.filter, workload_keys=keys, cursor=cursor, limit=limit)


def find_best(repos: Repositories, search: RecordSearch, *, cursor: str | None, limit: int) -> Page[Record]:
    """Return the fastest record of every workload, target, device model and toolchain, in that order.

    Raises:
        InvalidInputError: ``invalid-cursor``.
    """
    if not search.is_by_kernel:
        return repos.records.best_page(search.filter, cursor=cursor, limit=limit)
    records: list[Record] = []
    for record in _best(repos, search, cursor, limit):
        if len(records) == limit:
            return Page(items=tuple(records), next_cursor=records[-1].id)
        records.append(record)
    return Page(items=tuple(records))


def _best(repos: Repositories, search: RecordSearch, cursor: str | None, limit: int) -> Iterator[Record]:
    """Yield them workload by workload: each takes one or two index seeks."""
    begin = ""
    if cursor is not None:
        last = repos.searches.record(cursor)
        if last is None:
            raise InvalidInputError("the cursor is not from this list", code="invalid-cursor")
        begin = last.workload_key
    for key in _keys(repos, search):
        if key < begin:
            continue
        one_workload, after = replace(search.filter, workload_key=key), cursor if key == begin else None
        while True:
            part = repos.records.best_page(one_workload, cursor=after, limit=limit)
            yield from part.items
            after = part.next_cursor
            if after is None:
                break


def _keys(repos: Repositories, search: RecordSearch) -> list[str]:
    keys = repos.searches.workloads_like(search.operator, shape=search.shape, limit=MOST_WORKLOADS)
    only = search.filter.workload_key
    return sorted(key for key in keys if only in (None, key))
