"""What commands print."""

from __future__ import annotations

import pytest

from tunefarm.cli.base.output import Output


def test_an_id_stays_on_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    job_id = f"job_{'0' * 26}"
    words = "some words that take more room than there is beside an id"
    Output().table(("job", "model", "note"), [(job_id, words, words), (job_id, words, words)])
    lines = capsys.readouterr().out.splitlines()
    assert sum(job_id in line for line in lines) == 2
    assert all(len(line) <= 80 for line in lines)
