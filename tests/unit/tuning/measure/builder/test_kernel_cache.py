"""The cache of built kernels: hard links, fresh paths, and a bound on its size."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tunefarm_tuning.core.output_file import link_or_copy
from tunefarm_tuning.measure.builder.kernel_cache import KernelCache, Known
from tunefarm_tuning.space.config import Config

ASKED, APPLIED = Config(0, (1,)), Config(0, (2,))


def make_cache(folder: Path, max_bytes: int) -> KernelCache:
    (folder / "recent").mkdir()
    return KernelCache(folder / "recent", max_bytes=max_bytes)


def kernel(folder: Path, name: str, size: int = 100) -> Path:
    path = folder / name
    path.write_bytes(name[:1].encode() * size)
    return path


def test_a_kernel_outlives_the_callers_file(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, 1000)
    first = kernel(tmp_path, "a")
    cache.keep("task", "1", first, {"gpu_code": {"registers": 64}})
    first.unlink()
    assert cache.give("task", "1", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == b"a" * 100
    assert not cache.give("other task", "1", tmp_path / "other")
    assert not cache.give("task", "2", tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert cache.hits == 1
    assert cache.facts("task", "1") == {"gpu_code": {"registers": 64}}
    assert cache.facts("task", "2") == {}


def test_the_least_used_goes_first(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, 250)
    for code in ("1", "2"):
        cache.keep("task", code, kernel(tmp_path, code), {})
    assert cache.give("task", "1", tmp_path / "out-1")
    cache.keep("task", "3", kernel(tmp_path, "3"), {})
    assert not cache.give("task", "2", tmp_path / "out-2")
    assert cache.facts("task", "2") == {}
    assert cache.give("task", "1", tmp_path / "out-3")
    assert cache.give("task", "3", tmp_path / "out-4")
    assert len(list((tmp_path / "recent").iterdir())) == 2
    cache.keep("task", "big", kernel(tmp_path, "big", 300), {})
    assert not cache.give("task", "big", tmp_path / "out-5")


def test_none_are_kept_where_there_is_no_room(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, 0)
    cache.keep("task", "1", kernel(tmp_path, "1"), {})
    assert not cache.give("task", "1", tmp_path / "out")


def test_what_a_config_became_is_known_under_both_names(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, 1000)
    known = Known(APPLIED, "c")
    cache.learn("task", ASKED, known)
    assert cache.known("task", ASKED) == cache.known("task", APPLIED) == known
    assert cache.known("other", ASKED) is None


def test_without_links_a_copy_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert link_or_copy(kernel(tmp_path, "a"), tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"a" * 100
    assert not link_or_copy(tmp_path / "missing", tmp_path / "c")
    assert not (tmp_path / "c").exists()
