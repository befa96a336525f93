"""A backup's file: complete, or not there; what a killed backup left is removed by the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tunefarm_app.operations.backup_file import backup_file

KILLED = """
import os, signal, sys
from pathlib import Path
from tunefarm_app.operations.backup_file import backup_file

with backup_file(Path(sys.argv[1])) as file:
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_backup_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "farm.tar"
    killed = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.read_bytes() == b"half of it"
    with backup_file(path) as file:
        file.write(b"all of it")
        assert not left.exists()
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"all of it"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_no_abandoned_part_stays(tmp_path: Path) -> None:
    """A backup at work, an output file of a command, and what somebody else gave such a name."""
    strangers = [tmp_path / ".tunefarm-0011223344556677.part", tmp_path / "kept"]
    for stranger in strangers:
        stranger.write_text("kept")
    link, folder = tmp_path / ".tunefarm-backup-a.part", tmp_path / ".tunefarm-backup-b.part"
    link.symlink_to("kept")
    folder.mkdir()
    with backup_file(tmp_path / "first") as first:
        first.write(b"first")
        with backup_file(tmp_path / "second") as second:
            second.write(b"second")
    assert (tmp_path / "first").read_bytes() == b"first"
    assert (tmp_path / "second").read_bytes() == b"second"
    assert [stranger.read_text() for stranger in strangers] == ["kept", "kept"]
    assert link.is_symlink()
    assert folder.is_dir()


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), backup_file(tmp_path / "farm.tar"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileExistsError), backup_file(tmp_path / "farm.tar"):
        (tmp_path / "farm.tar").write_text("earlier")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["earlier"]
