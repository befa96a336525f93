"""Which tests `make test` leaves to `make test-all`: a pytest plugin with the markers ``exhaustive`` and ``matrix``.

``@pytest.mark.exhaustive`` is on a test, or a case of one, that is long and that shorter tests prove most of.
``@pytest.mark.matrix(every=4)`` is on a parametrised test of many like cases: `make test` runs a fourth of them, and each value
of an argument that several cases share (a target, say) at least once, unless it says ``each_value=False``. The option ``--exhaustive`` says which of them run:
``no`` (as `make test`), ``all`` (as `make test-all`), or a Git revision. With a revision, the tests that a file changed since
then can break run in full (`can_break` says which). A test that is named on the command line by its ``::`` always runs.

``--extra`` runs those tests alone that ``--exhaustive=no`` leaves out. ``--minutes`` is for a run that somebody ends after so long,
which would say nothing about any test: those that have not begun after so many minutes are skipped, and pytest's summary says so.
"""

from __future__ import annotations

import subprocess
import time
import zlib
from collections import Counter
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parents[2]
ENGINE_TESTS = ("tests/contract/tuning/", "tests/integration/tuning/", "tests/unit/tuning/")
ABOVE_ENGINE = ("services/", "db/", "deploy/", "docs/", "docker-compose.yml")
BELOW_ENGINE = ("services/tunefarm_text/",)
"""The engine's tests depend on everything but what is above the engine."""

_STARTED = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    parser.addoption(
        "--exhaustive", default="no", metavar="WHICH", help="no, all, or a Git revision: what changed since"
    )
    parser.addoption(
        "--extra", action="store_true", help="run only what --exhaustive adds to --exhaustive=no"
    )
    parser.addoption(
        "--minutes",
        type=float,
        default=float("inf"),
        metavar="N",
        help="begin no test later than N minutes after the start",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the markers, and note the time."""
    config.stash[_STARTED] = time.monotonic()
    config.addinivalue_line(
        "markers", "exhaustive: long, and mostly proved by others; `make test-all` runs it"
    )
    config.addinivalue_line(
        "markers",
        "matrix(every, each_value): of many like cases; `make test` runs every n-th",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that this run leaves out; pytest's summary counts them."""
    which = config.getoption("--exhaustive")
    if any("::" in argument for argument in config.args):
        return
    changed = () if which in ("no", "all") else _changed_since(which)
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_test.setdefault(item.nodeid.split("[")[0], []).append(item)
    always = {item for cases in by_test.values() for item in _always(cases)}
    run = set()
    for test, cases in by_test.items():
        in_full = which == "all" or any(can_break(path, test.split("::")[0]) for path in changed)
        run.update(cases if in_full else always.intersection(cases))
    if config.getoption("--extra"):
        run -= always
    chosen = [item for item in items if item in run]
    left_out = [item for item in items if item not in run]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose time is over."""
    minutes = item.config.getoption("--minutes")
    if time.monotonic() - item.config.stash[_STARTED] > 60 * minutes:
        pytest.skip(f"not begun within the {minutes:g} minutes of --minutes")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let a run pass that has no extra tests to run."""
    if session.config.getoption("--extra") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def _always(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return the cases of a test that `make test` runs."""
    cases = [case for case in cases if not case.get_closest_marker("exhaustive")]
    matrix = cases[0].get_closest_marker("matrix") if cases else None
    return sample(cases, **matrix.kwargs) if matrix else cases


def sample(cases: list[pytest.Item], every: int, *, each_value: bool = True) -> list[pytest.Item]:
    """Return one of `every` cases, by a hash of their names; with `each_value` more, until no shared value of an argument is missing."""
    values = {
        case: {(name, id(value)) for name, value in getattr(case, "callspec").params.items()}  # noqa: B009
        for case in cases
    }
    uses = Counter(value for case in cases for value in values[case])
    ranked = sorted(cases, key=lambda case: zlib.crc32(case.name.encode()))
    count = -(-len(cases) // every)
    chosen = ranked[:count]
    if not each_value:
        return chosen
    seen = {value for case in chosen for value in values[case]}
    for case in ranked[count:]:
        if any(uses[value] > 1 and value not in seen for value in values[case]):
            chosen.append(case)
            seen |= values[case]
    return chosen


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
