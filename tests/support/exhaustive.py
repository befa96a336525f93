"""Which tests `make test` leaves to `make test-all`: a pytest plugin with the markers ``exhaustive`` and ``matrix``.

``@pytest.mark.exhaustive`` is on a test that is long and that shorter tests prove most of. ``@pytest.mark.matrix(every=4)`` is
on a parametrised test of many like cases: `make test` runs every fourth. The option ``--exhaustive`` says which of them run:
``no`` (as `make test`), ``all`` (as `make test-all`), or a Git revision. With a revision, the tests that a file changed since
then can break run in full (`can_break` says which). A test that is named on the command line by its ``::`` always runs.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parents[2]
ENGINE_TESTS = ("tests/contract/tuning/", "tests/integration/tuning/", "tests/unit/tuning/")
ABOVE_ENGINE = ("services/", "db/", "deploy/", "docs/", "docker-compose.yml")
BELOW_ENGINE = ("services/tunefarm_text/",)
"""The engine's tests depend on everything but what is above the engine."""


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
        runs = runs or any(can_break(path, test.split("::")[0]) for path in changed)
        (chosen if runs else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


def _changed_since(revision: str) -> tuple[str, ...]:
    """Return the paths of the files that differ from the revision.

    Raises:
        pytest.UsageError: Git does not know the revision.
    """
    done = subprocess.run(
        ["git", "diff", "--name-only", "--no-renames", "-z", revision, "--"],
        cwd=ROOT, capture_output=True, check=False, text=True,
    )  # fmt: skip
    if done.returncode:
        raise pytest.UsageError(f"--exhaustive takes no, all or a Git revision: {done.stderr.strip()}")
    return tuple(name for name in done.stdout.split("\0") if name)


def can_break(changed: str, test: str) -> bool:
    """Whether a change of one file can make the tests of another fail. Both are paths below the repository's root.

    A test file breaks its own tests alone, prose none, and every other file all tests; but the engine's tests depend neither on
    the services nor on the database.
    """
    if changed == test:
        return True
    if changed.endswith(".md") or (
        changed.startswith("tests/") and PurePath(changed).name.startswith("test_")
    ):
        return False
    above = changed.startswith(ABOVE_ENGINE) and not changed.startswith(BELOW_ENGINE)
    return not (above and test.startswith(ENGINE_TESTS))
