"""Progress bars in a notebook's cell: displayed once, then updated in place."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tunefarm.client import Job
from tunefarm.live.waiting import OF_A_JOB, notebook_view, somebody_watches


def job(state: str, trials: int = 0) -> Job:
    progress = {"phase": state, "tasks_total": 4, "tasks_with_record": 2}
    return Job.read(
        {"id": "job_1", "state": state, "trials": trials, "budget": {"trials": 8}, "progress": progress}
    )


class DisplayHandle:
    """A cell's output, as IPython's `display` makes it."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.displays = 0

    def display(self, value: Any, *, display_id: bool) -> DisplayHandle:
        assert display_id
        self.displays += 1
        self.update(value)
        return self

    def update(self, value: Any) -> None:
        assert "text/html" in value._repr_mimebundle_(include=[], exclude=[])  # what a notebook takes
        file = io.StringIO()
        Console(file=file, width=120).print(value)
        self.shown.append(file.getvalue())


def test_one_output_is_updated_in_place() -> None:
    handle = DisplayHandle()
    bars = notebook_view(OF_A_JOB, Console(file=io.StringIO()), handle.display)
    assert handle.displays == 0, "nothing to see yet"
    bars.on_job(job("queued"))
    bars.on_job(job("tuning", 4))
    bars.on_away()
    bars.on_job(job("succeeded", 8))
    assert handle.displays == 1
    assert len(handle.shown) == 4
    assert "4 trials, 0 failed, 2 of 4 kernels" in handle.shown[1]
    assert "the server does not answer" in handle.shown[2]
    assert "does not answer" not in handle.shown[3]
    assert "verify" in handle.shown[3]
    assert "upload" not in handle.shown[3]


def test_nobody_watches_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not somebody_watches()
