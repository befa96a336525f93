"""What an agent's process imports: a small board has little memory."""

from __future__ import annotations

import subprocess
import sys


def imported(code: str) -> set[str]:
    """Return the packages that a new process has imported after some code."""
    code += "\nprint(*sorted({name.partition('.')[0] for name, module in sys.modules.items() if module}))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_an_agent_imports_neither_httpxs_command_nor_numpy() -> None:
    packages = imported("import tunefarm_workers.device.__main__")
    assert "httpx" in packages
    assert not packages & {"click", "rich", "pygments", "typer", "numpy", "tvm", "pydantic"}


def test_click_can_be_imported_before_and_after() -> None:
    both = "from tunefarm_workers.device.lean_httpx import httpx\nassert httpx.Client"
    assert "click" in imported(f"{both}\nimport click")
    assert "click" in imported(f"import click\n{both}\nassert click.command")
