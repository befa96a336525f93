"""Outputs of ONNX Runtime that are kept: whole, for the same facts, and bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunefarm_tuning.reference import kept_outputs
from tunefarm_tuning.reference.kept_outputs import KeptOutputs

FILE, FACTS = "f" * 64, {"threads": 2}
REPLY = {"outputs": ["y"], "made": 1}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    written = {"0-inputs": tmp_path / "inputs.npz", "0-expected": tmp_path / "expected.npz"}
    for name, path in written.items():
        path.write_bytes(name.encode() * 1000)
    return {**written, "0-widths": tmp_path / "widths.npz"}


@pytest.fixture
def kept(tmp_path: Path, files: dict[str, Path]) -> KeptOutputs:
    outputs = KeptOutputs(tmp_path / "references")
    outputs.keep(FILE, FACTS, files, REPLY)
    return outputs


def test_what_was_kept_comes_back(kept: KeptOutputs, files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    later = {name: tmp_path / "later" / path.name for name, path in files.items()}
    assert kept.restore(FILE, FACTS, later) == REPLY
    assert [later[name].read_bytes() for name in list(files)[:2]] == [
        files[name].read_bytes() for name in list(files)[:2]
    ]
    assert not later["0-widths"].exists(), "the child had written none"


def test_other_facts_are_not_known(kept: KeptOutputs, files: dict[str, Path]) -> None:
    assert kept.restore(FILE, {**FACTS, "threads": 1}, files) is None
    assert kept.restore("e" * 64, FACTS, files) is None


def test_a_files_entries_go_with_it(kept: KeptOutputs, files: dict[str, Path]) -> None:
    kept.keep("e" * 64, FACTS, files, REPLY)
    kept.forget(FILE)
    assert kept.restore(FILE, FACTS, files) is None
    assert kept.restore("e" * 64, FACTS, files) == REPLY


def test_a_clock_that_is_far_off_costs_no_compile(tmp_path: Path, files: dict[str, Path]) -> None:
    os.utime(files["0-inputs"], (0, 0))  # zip files know no time before 1980
    outputs = KeptOutputs(tmp_path / "references")
    outputs.keep(FILE, FACTS, files, REPLY)
    assert outputs.restore(FILE, FACTS, files) == REPLY


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied"])
def test_a_damaged_entry_is_not_known(damage: str, kept: KeptOutputs, files: dict[str, Path]) -> None:
    (entry,) = kept.folder.iterdir()
    data = bytearray(entry.read_bytes())
    if damage == "changed":
        data[data.index(b"0-expected0-expected") + 5] ^= 1
    entry.write_bytes({"cut": data[:-40], "changed": data, "emptied": b""}[damage])
    assert kept.restore(FILE, FACTS, files) is None


def test_large_outputs_and_unwritable_folders_keep_nothing(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    KeptOutputs(tmp_path / "file" / "references").keep(FILE, FACTS, files, REPLY)
    monkeypatch.setattr(kept_outputs, "_ENTRY_BYTES", 10_000)
    outputs = KeptOutputs(tmp_path / "references")
    outputs.keep(FILE, FACTS, files, REPLY)
    assert list(outputs.folder.iterdir()) == []


def test_entries_that_nobody_used_for_longest_go_first(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_outputs, "_ALL_BYTES", 50_000)
    outputs = KeptOutputs(tmp_path / "references")
    for threads in range(4):  # 21 KB each
        outputs.keep(FILE, {**FACTS, "threads": threads}, files, REPLY)
    assert len(list(outputs.folder.iterdir())) == 2
