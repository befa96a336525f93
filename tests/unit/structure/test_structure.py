"""Measures of the structure: modules per folder, lines per file, no import circles, and paths in the docs that exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import grimp
from repository import DOCS, ROOT, repository_files

PACKAGES = (
    "tunefarm_tuning",
    "tunefarm_convert",
    "tunefarm_text",
    "tunefarm_db",
    "tunefarm_app",
    "tunefarm_api",
    "tunefarm_workers",
    "tunefarm",
)
TESTED = {
    "tuning": "tuning/tunefarm_tuning",
    "tuning/convert": "tuning/tunefarm_convert",
    "db": "db/tunefarm_db",
    "app": "services/tunefarm_app",
    "api": "services/tunefarm_api",
    "web": "services/tunefarm_api/web",
    "text": "services/tunefarm_text",
    "cli": "services/tunefarm/cli",
    "client": "services/tunefarm/client",
    "embedded": "services/tunefarm/embedded",
    "live": "services/tunefarm/live",
    "workers": "workers/tunefarm_workers",
    "device": "workers/tunefarm_workers/device",
}
"""The folders of tests, and the folders of what they test."""
TESTED_ELSEWHERE = {"benchmarks", "deploy", "docs", "examples", "release", "structure"}
MOST_MODULES = 20
MOST_LINES = 400
MIGRATIONS = Path("db/tunefarm_db/migrations/versions")  # one a change of the schema, and never edited again


def python_files() -> list[Path]:
    return repository_files("*.py")


def product_files() -> list[Path]:
    return [path for path in python_files() if path.parts[0] in {"tuning", "db", "services", "workers"}]


def test_no_folder_has_too_many_modules() -> None:
    counts = Counter(
        path.parent
        for path in python_files()
        if path.name not in {"__init__.py", "__main__.py"} and path.parent != MIGRATIONS
    )
    wide = {str(folder): count for folder, count in counts.items() if count > MOST_MODULES}
    assert not wide


def test_no_file_is_too_long() -> None:
    lines = {
        str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in python_files()
    }
    assert not {path: count for path, count in lines.items() if count > MOST_LINES}


def test_tests_lie_as_what_they_test() -> None:
    """Below each kind of tests is the tree of the source, and a test called after a module lies where the module does."""
    misplaced = []
    for path in python_files():
        if not path.match("test_*.py") or path.parts[1] not in {"unit", "contract", "integration"}:
            continue
        folder = "/".join(path.parts[2:-1])
        roots = [root for root in TESTED if f"{folder}/".startswith(f"{root}/")]
        if not roots:
            misplaced += [] if folder in TESTED_ELSEWHERE or not folder else [str(path)]
            continue
        root = max(roots, key=len)
        source = ROOT / (TESTED[root] + folder.removeprefix(root))
        name = path.stem.removeprefix("test_")
        here = (source / f"{name}.py", source / name)
        deeper = [*source.rglob(f"{name}.py"), *(below for below in source.rglob(name) if below.is_dir())]
        if not source.is_dir() or (deeper and not any(module.exists() for module in here)):
            misplaced.append(
                f"{path}: {source.relative_to(ROOT)} {[str(module.relative_to(ROOT)) for module in deeper]}"
            )
    assert not misplaced


def test_the_paths_named_on_the_page_of_changes_begin_with_the_package() -> None:
    roots = [ROOT / folder for folder in (".", "tuning", "db", "services", "workers")]
    paths = named_paths(DOCS / "extending.md")
    assert len(paths) > 100
    assert not [path for path in paths if not any((root / path).exists() for root in roots)]


def test_the_paths_named_in_the_docs_exist() -> None:
    """Outside of the page of changes, a path may begin at any folder: ``tuning/plan.py``."""
    folders = {part for path in repository_files() for part in path.parts[:-1]}
    known = {
        "/".join(path.parts[start:end])
        for path in repository_files()
        for start in range(len(path.parts))
        for end in range(start + 1, len(path.parts) + 1)
    }
    named = [
        (str(page.relative_to(DOCS)), path.rstrip("/"))
        for page in sorted(DOCS.rglob("*.md"))
        for path in named_paths(page)
        if path.endswith(".py") or path.split("/")[0] in folders
    ]
    assert len(named) > 500
    assert not [(page, path) for page, path in named if path not in known]


def named_paths(page: Path) -> list[str]:
    return [path for path in re.findall(r"`([\w./-]+)`", page.read_text(encoding="utf-8")) if "/" in path]


def test_the_tables_named_in_the_docs_exist() -> None:
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    tables = re.findall(r"`(\w+)`(?:, `\w+`)*(?: or `\w+`)? (?:in|of) `([\w/]+\.py)`", text)
    files = [
        (name, file)
        for name, path in tables
        for root in ("tuning", "db", "services", "workers")
        if (file := ROOT / root / path).is_file()
    ]
    assert len(files) > 20
    assert not [(name, str(file)) for name, file in files if name not in file.read_text(encoding="utf-8")]


def test_the_modules_named_by_folders_exist() -> None:
    """A folder's docstring tells the way through it: by modules, what is in them, or what is in the folder's own file."""
    sources = {
        ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__"): path for path in product_files()
    }
    missing = []
    for folder, path in sources.items():
        if path.name != "__init__.py":
            continue
        doc = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
        for name in re.findall(r"(?<!`)`([a-z_0-9]+(?:\.\w+)*)`(?!`)", doc):
            holder, _, member = name.rpartition(".")
            roots = ("", *(f"{root}." for root in (folder, *folders_above(folder))))
            holders = [sources[root + holder] for root in roots if root + holder in sources] or [path]
            code = "".join((ROOT / each).read_text(encoding="utf-8") for each in holders).replace(doc, "")
            if not any(root + name in sources for root in roots) and not re.search(rf"\b{member}\b", code):
                missing.append((folder, name))
    assert not missing


def folders_above(folder: str) -> list[str]:
    parts = folder.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)  # imports for type checkers count as well
    circles = [
        sorted(circle)
        for circle in strongly_connected(
            {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
        )
        if len(circle) > 1
    ]
    assert not circles


def strongly_connected(edges: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components of a graph (Kosaraju's algorithm)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in edges:
        stack = [(start, iter(edges[start]))] if start not in seen else []
        seen.add(start)
        while stack:
            node, following = stack[-1]
            for neighbour in following:
                if neighbour not in seen:
                    seen.add(neighbour)
                    stack.append((neighbour, iter(edges[neighbour])))
                    break
            else:
                order.append(node)
                stack.pop()
    backwards: dict[str, set[str]] = {node: set() for node in edges}
    for node, following_nodes in edges.items():
        for neighbour in following_nodes:
            backwards[neighbour].add(node)
    components: list[set[str]] = []
    assigned: set[str] = set()
    for node in reversed(order):
        if node in assigned:
            continue
        component: set[str] = set()
        pending = [node]
        while pending:
            current = pending.pop()
            if current not in assigned:
                assigned.add(current)
                component.add(current)
                pending.extend(backwards[current] - assigned)
        components.append(component)
    return components
