"""Which tests `make test` leaves to `make test-all`: a pytest plugin with the markers ``exhaustive`` and ``matrix``.

``@pytest.mark.exhaustive`` is on a test that is long and that shorter tests prove most of. ``@pytest.mark.matrix(every=4)`` is
on a parametrised test of many like cases: `make test` runs every fourth. The option ``--exhaustive`` says which of them run:
``no`` (as `make test`), ``all`` (as `make test-all`), or a Git revision. With a revision, the tests that a file changed since
then can break run in full: those of the engine if the engine changed, and those of the farm if anything did. A test that is
named on the command line by its ``::`` always runs.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINE_TESTS = ("tests/contract/tuning/", "tests/integration/tuning/", "tests/unit/tuning/")
ENGINE = (
    "tuning/",
    "pyproject.toml",
    "uv.lock",
    "services/tunefarm_text/",
    "tests/support/",
    "tests/conftest.py",
)
"""What the engine's tests depend on. All other tests depend on the whole product."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses tests."""
    parser.addoption(
        "--exhaustive", default="no", metavar="WHICH", help="no, all, or a Git revision: what changed since"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the markers."""
    config.addinivalue_line(
        "markers", "exhaustive: long, and mostly proved by others; `make test-all` runs it"
    )
    config.addinivalue_line("markers", "matrix(every): of many like cases; `make test` runs every n-th")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that this run leaves out; pytest's summary counts them."""
    which = config.getoption("--exhaustive")
    if which == "all" or any("::" in argument for argument in config.args):
        return
    changed = () if which == "no" else _changed_since(which)
    cases: Counter[str] = Counter()
    chosen, left_out = [], []
    for item in items:
        test = item.nodeid.split("[")[0]
        matrix = item.get_closest_marker("matrix")
        every = matrix.kwargs["every"] if matrix else 1
        runs = item.get_closest_marker("exhaustive") is None and cases[test] % every == 0
        cases[test] += 1
        (chosen if runs or _can_break(test.split("::")[0], changed) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


def _changed_since(revision: str) -> tuple[str, ...]:
    names = subprocess.run(
        ["git", "diff", "--name-only", "-z", revision, "--"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    return tuple(name for name in names.split("\0") if name and not name.endswith(".md"))


def _can_break(test: str, changed: tuple[str, ...]) -> bool:
    """Whether one of the changed files can make a test fail."""
    depends_on = (
        ENGINE if test.startswith(ENGINE_TESTS) else (*ENGINE, "db/", "services/", "workers/", "deploy/")
    )
    return test in changed or any(path.startswith(depends_on) for path in changed)
