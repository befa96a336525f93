"""Lists of the group ``tunefarm jobs``, from a given client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tunefarm.cli.base.output import Output
from tunefarm.cli.jobs.look import list_trials


def test_trials_are_printed_as_they_arrive(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def trials(job_id: str) -> Iterator[Any]:
        for number in range(4):
            printed.append(capsys.readouterr().out)
            yield SimpleNamespace(raw={"job": job_id, "trial": number}, outcome="ok")

    client = SimpleNamespace(jobs=SimpleNamespace(trials=trials))
    job_id = f"job_{'0' * 26}"
    server: Any = SimpleNamespace(connect=lambda: nullcontext(client))
    list_trials(Output(json=True), server, job_id, limit=3)
    rest = capsys.readouterr()
    lines = [json.loads(line) for line in printed[1:]]
    assert lines == [{"job": job_id, "trial": number} for number in range(3)]
    assert rest.out == ""
    assert "limit" in rest.err, "the fourth is there, and left out"
