"""Count the product's lines of Python by package and kind: ``python tools/count_lines.py``, from the checkout's root."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

_KINDS = ("code", "import", "docstring", "comment", "blank")


def count_lines(source: str) -> Counter[str]:
    """Return the number of lines of each kind. A line with code and a comment counts as code."""
    docstrings = set[int]()
    for node in ast.walk(ast.parse(source)):
        for statement in node.body if isinstance(getattr(node, "body", None), list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docstrings.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return Counter(
        "docstring" if number in docstrings else _kind(line.strip())
        for number, line in enumerate(source.splitlines(), 1)
    )


def _kind(line: str) -> str:
    if not line:
        return "blank"
    if line.startswith("#"):
        return "comment"
    return "import" if line.startswith(("import ", "from ")) else "code"


def main() -> None:
    """Print a row per package, and the total."""
    command = ["git", "ls-files", "tuning", "db", "services", "workers"]
    paths = subprocess.check_output(command, text=True)
    packages: dict[str, Counter[str]] = {}
    for path in map(Path, paths.splitlines()):
        if path.suffix == ".py":
            counts = packages.setdefault(path.parts[1], Counter())
            counts.update(count_lines(path.read_text(encoding="utf-8")), files=1)
    packages["total"] = sum(packages.values(), Counter())
    print("| Package | Files | Lines |", " | ".join(_KINDS), "|")
    for package, counts in packages.items():
        figures = [counts["files"], sum(counts[kind] for kind in _KINDS), *(counts[kind] for kind in _KINDS)]
        print(f"| {package} |", " | ".join(f"{figure:,}" for figure in figures), "|")


if __name__ == "__main__":
    main()
