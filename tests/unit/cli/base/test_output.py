"""What commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefarm.cli.base.output import Output, write_whole
from tunefarm_tuning.core.errors import InvalidInputError


def test_an_id_stays_on_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    job_id = f"job_{'0' * 26}"
    words = "some words that take more room than there is beside an id"
    Output().table(("job", "model", "note"), [(job_id, words, words), (job_id, words, words)])
    lines = capsys.readouterr().out.splitlines()
    assert sum(job_id in line for line in lines) == 2
    assert all(len(line) <= 80 for line in lines)


def test_an_id_gives_way_where_it_would_squeeze_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    columns = ("job", "state", "model", "best", "created")
    Output().table(columns, [(f"job_{'0' * 26}", "cancelled", "resnet18", "10.1 ms", "11:29:37")])
    out = capsys.readouterr().out
    assert "cancelled" in out
    assert f"job_{'0' * 26}" not in out
    assert "…000000 " in out, "as pages show it, on one line; commands take it"


def test_an_id_of_which_commands_take_no_part_is_shown_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    Output().table(("samples", "state", "name", "size", "created"), [(f"smp_{'0' * 26}", "a", "b", "c", "d")])
    out = capsys.readouterr().out
    assert "…" not in out
    assert out.count("0") == 26


@pytest.mark.parametrize(
    ("width", "shown", "named"),
    [
        (100, ["name", "note", "pool", "state", "tags"], ""),
        (30, ["name", "note", "pool", "state"], ""),
        (22, ["name", "pool", "state"], "note"),
        (5, ["name", "state"], "note, pool"),
    ],
)
def test_a_narrow_terminal_does_without_columns(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    shown: list[str],
    named: str,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    columns = ("name", ">note", "pool", "state", "tags")
    Output().table(columns, [("n", "x", "p", "on", "")], optional=("absent", ">note", "pool", "tags"))
    printed = capsys.readouterr()
    if width > 5:
        assert sorted(printed.out.split("─")[0].split()) == shown
    assert (f"this terminal is too narrow for: {named}; --json has all" in printed.err) == bool(named)


def test_a_header_takes_no_more_room_than_its_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    Output().table(("name", "over the fastest", "spare"), [("n", "1.21×", "x")], optional=("spare",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["over"]
    assert lines[2].split() == ["the"]
    assert lines[3].split() == ["name", "fastest", "spare"]


def test_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Output().items([], {"job": str})
    printed = capsys.readouterr()
    assert "job" in printed.out
    assert printed.err == "nothing to list: there are no items, or none match\n"
    Output().items(["a"], {"job": str})
    assert capsys.readouterr().err == ""


def test_a_file_that_cannot_be_written_has_the_name_that_was_given(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"none/out\.jsonl cannot be written: No such file"
    ) as refused:
        write_whole(tmp_path / "none" / "out.jsonl", "x")
    assert refused.value.code == "cannot-write"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_whole(path, "first")
    write_whole(path, "second")
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "third \ud800")
    assert path.read_text() == "second"
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]
