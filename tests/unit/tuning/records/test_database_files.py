"""Files that are no database of MetaSchedule's: each is refused for a reason of its own, before TVM sees it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tuning_records import RECORD

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.records import metaschedule
from tunefarm_tuning.records.metaschedule import (
    REASONS,
    RECORDS,
    WORKLOADS,
    export_metaschedule,
    import_metaschedule,
)


def workload(data: bytes = b"{}", *, length: int | None = None) -> str:
    prefix = (len(data) if length is None else length).to_bytes(8, "little")
    return json.dumps(["1", base64.b64encode(prefix + data).decode()]) + "\n"


TRACE = [[[], []], [1e-3], {"kind": "llvm"}, []]
LINE = json.dumps([0, TRACE]) + "\n"

BAD: dict[str, tuple[str, str, str, str]] = {
    "no workload": ("[1, 2]\n", "", "bad-database", "line 1: not a workload"),
    "another object": ('{"a": 1}\n', "", "bad-database", "line 1: not a workload"),
    "no JSON": (workload() + "nonsense\n" + workload(), "", "bad-database", "line 2: not JSON"),
    "nested": ("[" * 100_000 + "\n", "", "bad-database", "line 1: not JSON"),
    "not text": ('["\\ud800", 1', "", "database-incomplete", "line 1: the last line is cut"),
    "no base64": ('["1", "%%"]\n', "", "bad-database", "line 1: the workload is damaged"),
    "no module": (workload(b"nothing"), "", "bad-database", "line 1: the workload is damaged"),
    "cut module": (workload(b"{}", length=9), "", "bad-database", "another length"),
    "cut workloads": (workload()[:-9], "", "database-incomplete", "line 1: the last line is cut"),
    "cut records": (workload(), LINE + LINE[:-4], "database-incomplete", "line 2: the last line is cut"),
    "no record": (workload(), "[0]\n", "bad-database", "line 1: not a record"),
    "no trace": (workload(), "[0, [1, [1e-3], null, null]]\n", "bad-database", "line 1: not a record"),
    "a text as time": (workload(), '[0, [[], ["x"], null, null]]\n', "bad-database", "not a record"),
    "a huge time": (workload(), f"[0, [[], [{10**400}], null, null]]\n", "bad-database", "not a record"),
    "other files": (workload(), LINE.replace("0", "1", 1), "database-mismatch", "has only 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_database_is_refused(tmp_path: Path, case: str) -> None:
    workloads, records, code, words = BAD[case]
    (tmp_path / WORKLOADS).write_text(workloads)
    (tmp_path / RECORDS).write_text(records)
    with pytest.raises(InvalidInputError, match=words) as refused:
        import_metaschedule(tmp_path, device_model="m")
    assert refused.value.code == code


@pytest.mark.parametrize("name", [WORKLOADS, RECORDS])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / ({WORKLOADS, RECORDS} - {name}).pop()).write_text("")
    with pytest.raises(InvalidInputError, match=name) as refused:
        import_metaschedule(tmp_path, device_model="m")
    assert refused.value.code == "no-file"


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / WORKLOADS).write_text("")
    with (tmp_path / RECORDS).open("wb") as file:
        file.truncate(metaschedule.MAX_BYTES + 1)
    with pytest.raises(InvalidInputError, match="prune the database first") as refused:
        import_metaschedule(tmp_path, device_model="m")
    assert refused.value.code == "too-large"


@pytest.mark.parametrize("secs", ["[]", "null", "[NaN]", "[1e400]", "[-1]", "[0]", "[5e-324]", "[1e10]"])
def test_a_record_without_a_time_is_left_out(tmp_path: Path, secs: str) -> None:
    (tmp_path / WORKLOADS).write_text(workload())
    (tmp_path / RECORDS).write_text(f'[0, [[], {secs}, {{"kind": "llvm"}}, null]]\n')
    imported = import_metaschedule(tmp_path, device_model="m")
    assert imported.records == ()
    assert imported.left_out == {"not-measured": 1}


@pytest.mark.parametrize(
    ("change", "what"), [({"target_key": "llvm"}, "2 targets"), ({"device_model": "e"}, "2 device models")]
)
def test_records_of_two_machines_do_not_go_into_one_database(
    tmp_path: Path, change: dict[str, str], what: str
) -> None:
    with pytest.raises(InvalidInputError, match=what) as refused:
        export_metaschedule([RECORD, replace(RECORD, **change)], [], tmp_path)
    assert refused.value.code == "mixed-records"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="file") as refused:
        export_metaschedule([], [], tmp_path / "file")
    assert refused.value.code == "cannot-write"


def test_every_reason_is_a_clause() -> None:
    check: Callable[[str], bool] = str.isascii
    assert all(reason and check(reason) and not reason.endswith(".") for reason in REASONS.values())
