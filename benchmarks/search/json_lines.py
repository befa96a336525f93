"""Write results as JSON lines, each as soon as it is known, so that a killed run loses none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def append(path: Path, line: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())


def load(path: Path) -> list[dict[str, Any]]:
    """Return all whole lines; a last one that a killed run left unfinished is cut off, so that none is glued to it."""
    if not path.exists():
        return []
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if len(complete) < len(data):
        with path.open("rb+") as file:
            file.truncate(len(complete))
    return [json.loads(line) for line in complete.decode("utf-8").splitlines() if line.strip()]
