"""Scratch folders go with their owners."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tunefarm_tuning.process.scratch import ScratchDir, sweep


def make_old(folder: Path) -> None:
    os.utime(folder, (1_000_000_000, 1_000_000_000))


def test_close_deletes(tmp_path: Path) -> None:
    scratch = ScratchDir(tmp_path / "new" / "root")
    (scratch.path / "deep").mkdir()
    (scratch.path / "deep" / "file").write_text("x")
    assert scratch.path.stat().st_mode & 0o077 == 0
    scratch.close()
    scratch.close()
    assert not scratch.path.exists()


def test_a_dead_owners_folder_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from tunefarm_tuning.process.scratch import ScratchDir;"
        "print(ScratchDir(Path(sys.argv[1])).path, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    dead = Path(done.stdout.strip())
    assert dead.is_dir()
    living = ScratchDir(tmp_path)
    assert dead.is_dir()  # too young: it could be in the making
    for folder in (dead, living.path):
        make_old(folder)
    unlocked = tmp_path / "tunefarm-scratch-unlocked"
    unlocked.mkdir()
    make_old(unlocked)
    other = tmp_path / "other"
    other.mkdir()
    make_old(other)
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {living.path.name, "other"}
    living.close()


def test_what_a_child_left_to_stay_is_deleted(tmp_path: Path) -> None:
    """Before, a folder within a thousand others ended the call that deleted them, and a closed one stayed for ever."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("k")
    scratch = ScratchDir(tmp_path / "root")
    (scratch.path / "link").symlink_to(outside)
    closed = scratch.path / "closed"
    closed.mkdir()
    (closed / "file").write_text("f")
    script = (
        "import os, sys\n"
        "os.chdir(sys.argv[1])\n"
        "for _ in range(1200):\n"
        "    os.mkdir('d')\n"
        "    os.chdir('d')\n"
        "os.mkdir('closed', 0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(scratch.path)], check=True)
    closed.chmod(0o300)
    scratch.close()
    assert not scratch.path.exists()
    assert (outside / "kept").read_text() == "k"
    assert outside.stat().st_mode & 0o777 != 0o700
