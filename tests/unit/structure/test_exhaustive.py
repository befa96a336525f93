"""Which tests run where a change is known (tests/support/exhaustive.py): a test left out by mistake would be a fault let through."""

import os
import re
import subprocess
import sys
from pathlib import Path

import exhaustive
import pytest
from exhaustive import can_break

ENGINE_TEST = "tests/unit/tuning/space/test_config_space.py"
FARM_TEST = "tests/soak/test_killed_workers.py"


@pytest.mark.parametrize(
    ("changed", "engine", "farm"),
    [
        ("tuning/tunefarm_tuning/space/knob.py", True, True),
        ("tuning/tunefarm_convert/tflite/graph.py", True, True),
        ("workers/tunefarm_workers/device/agent.py", True, True),
        ("services/tunefarm_text/quantities.py", True, True),
        ("benchmarks/models/__init__.py", True, True),
        ("examples/tiny_convnet.py", True, True),
        ("pyproject.toml", True, True),
        ("uv.lock", True, True),
        ("Makefile", True, True),
        (".ci/run", True, True),
        ("tests/conftest.py", True, True),
        ("tests/integration/conftest.py", True, True),
        ("tests/support/networks/onnx_models.py", True, True),
        ("services/tunefarm_api/app.py", False, True),
        ("services/tunefarm_web/static/app.js", False, True),
        ("db/tunefarm_db/engine.py", False, True),
        ("docker-compose.yml", False, True),
        ("docs/generate.py", False, True),
        ("docs/tutorial/first.ipynb", False, True),
        ("docs/testing.md", False, False),
        ("README.md", False, False),
        ("tests/unit/api/routes/test_jobs.py", False, False),
        (FARM_TEST, False, True),
        (ENGINE_TEST, True, False),
    ],
)
def test_what_a_change_can_break(changed: str, *, engine: bool, farm: bool) -> None:
    assert can_break(changed, ENGINE_TEST) == engine
    assert can_break(changed, FARM_TEST) == farm


TESTS = """
import pytest

@pytest.mark.exhaustive
def test_long(): pass

@pytest.mark.matrix(every=3)
@pytest.mark.parametrize("n", range(7))
def test_many(n): pass

@pytest.mark.matrix(every=9)
@pytest.mark.parametrize("target", ["x86", "arm", "cuda"])
@pytest.mark.parametrize("n", range(6))
def test_table(n, target): pass

@pytest.mark.matrix(every=6, each_value=False)
@pytest.mark.parametrize("target", ["x86", "arm"])
@pytest.mark.parametrize("n", range(6))
def test_few(n, target): pass

@pytest.mark.parametrize("size", ["small", pytest.param("large", marks=pytest.mark.exhaustive)])
def test_sizes(size): pass
"""


def ran(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_choices.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "exhaustive",
        "-q",
        *options,
        str(folder),
    ]
    # Other plugins take longer to import than these tests to run.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    environment = os.environ | alone | {"PYTHONPATH": str(Path(exhaustive.__file__).parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def collected(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return ran(folder, "--collect-only", *options)


def test_the_option_chooses(tmp_path: Path) -> None:
    everything = collected(tmp_path, "--exhaustive=all")
    chosen = collected(tmp_path, "--exhaustive=no")
    assert everything.returncode == chosen.returncode == 0, chosen.stdout
    assert everything.stdout.count("::test_") == 1 + 7 + 18 + 12 + 2
    assert "test_long" not in chosen.stdout
    assert chosen.stdout.count("::test_many") == 3
    table = re.findall(r"::test_table\[(\d)-(\w+)\]", chosen.stdout)
    assert len(table) < 10
    assert {number for number, _ in table} == set("012345")
    assert {target for _, target in table} == {"x86", "arm", "cuda"}
    assert chosen.stdout.count("::test_few") == 2
    assert re.findall(r"::test_sizes\[(\w+)\]", chosen.stdout) == ["small"]


def test_an_unknown_revision_is_refused(tmp_path: Path) -> None:
    done = collected(tmp_path, "--exhaustive=no-such-revision")
    assert done.returncode == 4
    assert "no, all or a Git revision" in done.stderr


def test_extra_tests_run_alone(tmp_path: Path) -> None:
    always = ran(tmp_path, "--exhaustive=no").stdout.splitlines()[-1].split()[0]
    extra = ran(tmp_path, "--exhaustive=all", "--extra")
    assert re.search(rf"^{40 - int(always)} passed, {always} deselected", extra.stdout, re.MULTILINE), (
        extra.stdout
    )
    none = ran(tmp_path, "--exhaustive=no", "--extra")
    assert none.returncode == 0, none.stdout
    assert "40 deselected" in none.stdout


def test_a_run_whose_time_is_over_begins_no_test(tmp_path: Path) -> None:
    late = ran(tmp_path, "--exhaustive=no", "--minutes=0", "-rs")
    assert late.returncode == 0, late.stdout
    assert "not begun within the 0 minutes of --minutes" in late.stdout
    assert "passed" not in late.stdout.splitlines()[-1]
    assert "skipped" not in ran(tmp_path, "--exhaustive=no", "--minutes=30").stdout
