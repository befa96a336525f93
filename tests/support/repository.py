"""The path of this checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository's top folder."""
EXAMPLES = ROOT / "examples"
DOCS = ROOT / "docs"
