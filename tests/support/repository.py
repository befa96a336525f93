"""The path of this checkout, and its files."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository's top folder."""
EXAMPLES = ROOT / "examples"
DOCS = ROOT / "docs"


def repository_files(*patterns: str) -> list[Path]:
    """Return the files that match patterns of Git, as paths below `ROOT`: new ones too, but none that Git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()]
