"""The filters of the client's lists: which there are, and how they are sent."""

from __future__ import annotations

import inspect

import pytest

from tunefarm.client.client import Client
from tunefarm.client.filters import JobFilters, RecordFilters, filter_query

LISTS = [
    (kind, method)
    for kind, methods in {
        "models": ("list", "all"),
        "jobs": ("list", "all"),
        "records": ("list", "all", "best"),
        "audit": ("list", "all"),
    }.items()
    for method in methods
]


@pytest.mark.parametrize(("kind", "method"), LISTS)
def test_each_filter_is_explained_and_a_wrong_one_is_refused(kind: str, method: str) -> None:
    with Client("http://127.0.0.1:9", "key") as client:
        call = getattr(getattr(client, kind), method)
    shown = inspect.signature(call).parameters
    assert not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in shown.values())
    assert [name for name in shown if f"{name}: " not in call.__doc__] == []
    with pytest.raises(TypeError, match="'colour'"):
        list(call(colour="red"))


def test_filters_are_sent_by_the_names_of_the_server() -> None:
    assert filter_query({"tags": "nightly", "state": None}, JobFilters) == {"tag": ["nightly"], "state": None}
    assert filter_query({"shape": (56, 56, 64)}, RecordFilters) == {"shape": "56x56x64"}
    assert filter_query({"shape": "56x56"}, RecordFilters) == {"shape": "56x56"}
