"""The record log: after a killed writer, no record is joined to another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_records import RECORD

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.records.log import RecordLog
from tunefarm_tuning.records.record import load_records

LATER = replace(RECORD, measured_at=2.0)
LINE = RECORD.to_json()


def test_records_are_there_before_it_is_closed(tmp_path: Path) -> None:
    with RecordLog(tmp_path / "log") as log:
        log.append([RECORD])
        assert list(load_records(tmp_path / "log")) == [RECORD]


@given(st.integers(1, len(LINE)))
def test_an_unfinished_line_is_cut_off(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_text(LINE + "\n" + LINE[:length])
    with RecordLog(path) as log:
        log.append([LATER])
    complete = [RECORD, RECORD] if length == len(LINE) else [RECORD]
    assert list(load_records(path)) == [*complete, LATER]


def test_an_unfinished_only_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(LINE[:30])
    with RecordLog(path) as log:
        log.append([LATER])
    assert list(load_records(path)) == [LATER]


def test_a_path_that_cannot_be_written_is_the_callers_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "log.jsonl"):
        with pytest.raises(InvalidInputError, match="cannot write the log") as caught:
            RecordLog(path)
        assert caught.value.code == "bad-log-path"
