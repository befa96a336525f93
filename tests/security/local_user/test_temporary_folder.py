"""Another user of the machine, who may write to the folder for temporary files as everybody may."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunefarm_tuning.process.scratch import ScratchDir

LONG_AGO = (1_000_000_000, 1_000_000_000)
NOBODY = 65534


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the farm's user, as old as a scratch folder whose owner is gone."""
    folder = tmp_path / "farm"
    (folder / "store").mkdir(parents=True)
    (folder / "store" / "blob").write_text("kept")
    os.utime(folder, LONG_AGO)
    return folder


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def test_a_link_leads_no_sweep_to_other_files(victim: Path, temporary: Path) -> None:
    """Before, all that the link's folder held was deleted, unless the kernel follows no links there (fs.protected_symlinks)."""
    (temporary / "tunefarm-scratch-planted").symlink_to(victim)
    ScratchDir(temporary).close()
    assert (victim / "store" / "blob").read_text() == "kept"


@pytest.mark.parametrize(
    ("owner", "mode"), [(NOBODY, 0o700), (None, 0o777)], ids=["of another user", "open to others"]
)
def test_a_folder_that_others_can_change_is_not_swept(temporary: Path, owner: int | None, mode: int) -> None:
    """Folders in it could become links while they are deleted, which no kernel refuses to follow there."""
    planted = temporary / "tunefarm-scratch-planted"
    planted.mkdir()
    if owner is not None:
        if os.geteuid() != 0:
            pytest.skip("only root gives folders away")
        os.chown(planted, owner, owner)
    planted.chmod(mode)
    os.utime(planted, LONG_AGO)
    ScratchDir(temporary).close()
    assert planted.is_dir()
