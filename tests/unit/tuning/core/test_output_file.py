"""A user's file is replaced by a complete one, or stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.output_file import output_file, write_durably


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"before")
    with output_file(path) as temporary:
        temporary.write_bytes(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "net.onnx", tmp_path / "link.onnx"
    link.symlink_to(path)
    with output_file(link) as temporary:
        temporary.write_bytes(b"after")
    assert link.is_symlink()
    assert path.read_bytes() == b"after"


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"before")

    def fail() -> None:
        with output_file(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "reason"), [("none/net.onnx", "No such file or directory"), ("", "not a regular file")]
)
def test_a_path_that_cannot_be_written(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=reason) as caught, output_file(tmp_path / name):
        pytest.fail("there is nothing to write to")
    assert caught.value.code == "cannot-write"
    assert str(tmp_path / name) in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(InvalidInputError, match="not a regular file"), output_file(Path("/dev/null")):
        pytest.fail("there is nothing to write to")
    assert Path("/dev/null").is_char_device()


def test_a_durable_file_has_its_mode_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "credential"
    for text in ("first", "second"):
        write_durably(path, text, mode=0o600)
        assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_durable_file_that_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "credential"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_durably(path, "text", mode=0o600)
    assert list(tmp_path.iterdir()) == [path]
