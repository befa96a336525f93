"""What is carried to a machine without a network arrives whole, or is refused."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest
from benchmarks.gpu import bundle

PYTHON = ".".join(platform.python_version_tuple()[:2])


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    site = tmp_path / "given"
    site.mkdir()
    (site / "carried.py").write_text("GREETING = 'carried'\n")
    (site / "data.bin").write_bytes(os.urandom(300_000))
    written = bundle.split(site, tmp_path / "parts", 100_000, PYTHON)
    assert len(written) >= 3
    assert max(part.stat().st_size for part in written) <= 100_000
    return tmp_path / "parts"


def test_the_other_machine_has_the_packages_and_the_checkout(parts: Path, tmp_path: Path) -> None:
    bundle.join(parts, tmp_path / "there")
    python = bundle.join(parts, tmp_path / "there")  # again, after another copy of the parts
    code = (
        "import carried, tunefarm_tuning.core.errors, benchmarks.gpu.bundle; from importlib import metadata; "
    )
    code += (
        "print(carried.GREETING, metadata.version('tunefarm') == metadata.metadata('tunefarm')['Version'])"
    )
    said = subprocess.run([python, "-I", "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert said == "carried True\n"


@pytest.mark.parametrize(("damage", "says"), [("change", "not what was written"), ("remove", "missing")])
def test_a_damaged_part_is_named(damage: str, says: str, parts: Path, tmp_path: Path) -> None:
    part = parts / "part-001"
    if damage == "change":
        data = bytearray(part.read_bytes())
        data[17] ^= 1
        part.write_bytes(data)
    else:
        part.unlink()
    with pytest.raises(ValueError, match=f"part-001 is {says}"):
        bundle.join(parts, tmp_path / "there")


def test_parts_for_another_python_are_refused(parts: Path, tmp_path: Path) -> None:
    bundle.split(tmp_path / "given", parts, 100_000, "3.99")
    with pytest.raises(ValueError, match=r"for Python 3\.99 and this is .*: join them by python3\.99"):
        bundle.join(parts, tmp_path / "there")


def test_parts_of_before_are_removed(parts: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    (small / "carried.py").write_text("")
    assert bundle.split(small, parts, 100_000, PYTHON) == [parts / "part-000"]
    assert sorted(path.name for path in parts.iterdir()) == ["part-000", "parts.json"]
