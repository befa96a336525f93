"""What a program is told that loads an artifact without the packages for it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["load", "InferenceSession"])
def test_without_numpy_the_error_says_what_to_install(name: str) -> None:
    program = f"import sys; sys.modules['numpy'] = None; import tunefarm; tunefarm.{name}('net.tunefarm')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    last = done.stderr.splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: numpy is not installed, but artifacts need it: pip install 'tunefarm[run]'"
    )
