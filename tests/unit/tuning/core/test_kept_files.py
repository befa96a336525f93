"""Folders of kept files: what was used longest ago goes first."""

from __future__ import annotations

import os
from pathlib import Path

from tunefarm_tuning.core.kept_files import folder_of_file, prune, usable_folder

PATTERNS = ("*.o",)


def kept(folder: Path, name: str, *, size: int, used_at: float) -> Path:
    path = folder / name
    path.write_bytes(bytes(size))
    os.utime(path, (used_at, used_at))
    return path


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    old = kept(tmp_path, "old.o", size=40, used_at=1.0)
    recent = kept(tmp_path, "recent.o", size=40, used_at=3.0)
    middle = kept(tmp_path, "middle.o", size=40, used_at=2.0)
    prune(tmp_path, PATTERNS, limit_bytes=80)
    assert (old.exists(), middle.exists(), recent.exists()) == (False, True, True)
    prune(tmp_path / "no folder", PATTERNS, limit_bytes=80)


def test_files_that_a_killed_process_left_are_pruned_too(tmp_path: Path) -> None:
    hidden = kept(tmp_path, ".half-written.o", size=40, used_at=1.0)
    prune(tmp_path, PATTERNS, limit_bytes=10)
    assert not hidden.exists()


def test_folders_of_files_share_the_limit(tmp_path: Path) -> None:
    first, second = (folder_of_file(tmp_path, digest) for digest in ("00ff", "11ff"))
    assert first is not None
    assert second is not None
    old, recent = (
        kept(folder, "kernel.o", size=40, used_at=used_at)
        for folder, used_at in ((first, 1.0), (second, 2.0))
    )
    deeper = first / "deeper"
    deeper.mkdir()
    unseen = kept(deeper, "kernel.o", size=40, used_at=0.0)
    (tmp_path / "link").symlink_to(first)
    prune(tmp_path, PATTERNS, limit_bytes=50)
    assert (old.exists(), recent.exists(), unseen.exists()) == (False, True, True)
    assert folder_of_file(None, "00ff") is folder_of_file(tmp_path, "") is None


def test_what_fits_no_pattern_stays(tmp_path: Path) -> None:
    thesis = kept(tmp_path, "thesis.docx", size=40, used_at=1.0)
    prune(tmp_path, PATTERNS, limit_bytes=10)
    assert thesis.exists()


def test_a_folder_is_made_once_it_is_needed(tmp_path: Path) -> None:
    assert usable_folder(None) is None
    assert usable_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    assert usable_folder(tmp_path / "file" / "b") is None
