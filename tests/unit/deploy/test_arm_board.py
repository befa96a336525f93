"""What a board needs to join: wheels for 64-bit Arm in the lock file, and a unit for systemd that says what the command takes."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.utils import parse_wheel_filename
from repository import ROOT

LOCK = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
GLIBC = (2, 28)


def environment(machine: str, python: str) -> dict[str, str]:
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "posix",
        "extra": "",
    }


def installed(extra: str, machine: str, python: str) -> list[dict[str, Any]]:
    """Return the packages of the lock file that an extra installs on a machine."""
    variables = environment(machine, python)

    def is_meant(entry: dict[str, Any]) -> bool:
        marker = entry.get("marker") or entry.get("resolution-marker")
        return marker is None or Marker(marker).evaluate(variables)

    (own,) = [package for package in LOCK if package["name"] == "tunefarm"]
    queue = [*own["dependencies"], *own["optional-dependencies"][extra]]
    chosen: dict[str, dict[str, Any]] = {}
    while queue:
        wanted = queue.pop()
        if not is_meant(wanted) or wanted["name"] in chosen:
            continue
        (package,) = [
            candidate
            for candidate in LOCK
            if candidate["name"] == wanted["name"]
            and wanted.get("version", candidate["version"]) == candidate["version"]
        ]
        chosen[wanted["name"]] = package
        queue += package.get("dependencies", [])
    return list(chosen.values())


def has_wheel(package: dict[str, Any], machine: str, python: str) -> bool:
    """Return whether pip finds a wheel of a package on a machine with glibc 2.28."""
    return any(
        fits(str(tag.platform), machine) and (tag.abi in ("none", "abi3", f"cp{python.replace('.', '')}"))
        for wheel in package.get("wheels", [])
        for tag in parse_wheel_filename(wheel["url"].rsplit("/", 1)[-1])[3]
        if tag.interpreter in ("py3", f"cp{python.replace('.', '')}") or tag.abi == "abi3"
    )


def fits(platform: str, machine: str) -> bool:
    glibc = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{machine}", platform)
    if glibc:
        return (int(glibc[1]), int(glibc[2])) <= GLIBC
    return platform in ("any", f"manylinux2014_{machine}")


@pytest.mark.parametrize("python", ["3.11", "3.12"])
@pytest.mark.parametrize("extra", ["run", "device"])
def test_a_board_needs_no_compiler_to_install_it(extra: str, python: str) -> None:
    packages = installed(extra, "aarch64", python)
    assert {"apache-tvm", "numpy", "httpx"} <= {package["name"] for package in packages}
    assert [package["name"] for package in packages if not has_wheel(package, "aarch64", python)] == []


def test_other_boards_lack_wheels_as_the_page_says() -> None:
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    for machine in ("armv7l", "riscv64"):
        packages = installed("device", machine, "3.11")
        missing = {package["name"] for package in packages if not has_wheel(package, machine, "3.11")}
        assert "apache-tvm" in missing
        assert machine in page


def test_the_unit_calls_the_command_as_it_is() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "tunefarm-device.service")
    command = unit["Service"]["ExecStart"].split()
    assert command[:3] == ["/opt/tunefarm/bin/tunefarm", "device", "join"]
    told = subprocess.run(
        [sys.executable, "-m", "tunefarm", "device", "join", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": ""},
    )
    options = {word for word in command if word.startswith("--")}
    assert options == {"--url", "--device-key", "--work-dir"}
    assert all(option in told.stdout for option in options)
    assert "TUNEFARM_ENROLMENT_TOKEN" in told.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_knows_everything_that_the_unit_says(tmp_path: Path) -> None:
    unit = tmp_path / "tunefarm-device.service"
    text = (ROOT / "deploy" / unit.name).read_text()
    unit.write_text(text.replace("/opt/tunefarm/bin/tunefarm", shutil.which("true") or ""))
    ran = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
