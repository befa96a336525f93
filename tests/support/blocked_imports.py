"""Interpreters in which packages cannot be imported, as where they are not installed."""

from __future__ import annotations

import os
from pathlib import Path

_SITE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def path_without(folder: Path, *packages: str) -> str:
    """Return a ``PYTHONPATH`` with which new interpreters lack packages."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE.format(packages=set(packages)))
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
