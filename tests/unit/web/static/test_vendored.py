"""The dashboard's third-party files are those of the lock."""

from __future__ import annotations

import json
import subprocess
import sys

from repository import ROOT

VENDOR = ROOT / "services/tunefarm_api/web/static/vendor"


def test_they_are_as_locked() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/vendor_web.py", "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_comes_with_its_licence_and_no_address() -> None:
    text = (VENDOR / "lock.json").read_text(encoding="utf-8")
    assert "://" not in text
    for package in json.loads(text)["packages"]:
        assert package["license"]
        names = [file["name"] for file in package["files"]]
        assert any("LICENSE" in name for name in names), package["name"]
        assert all(len(file["sha256"]) == 64 for file in package["files"])
