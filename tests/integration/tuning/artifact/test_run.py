"""An artifact in a fresh process without tunefarm: only the file itself is on its path."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tunefarm_tuning import Artifact, Coverage
from tunefarm_tuning.artifact.loader import ArtifactInputError, load

Compiled = tuple[Artifact, Coverage]

IN_A_FRESH_PROCESS = """
import glob, sys, tempfile
sys.modules["tunefarm_tuning"] = None  # an import of it would fail
sys.path.insert(0, sys.argv[1])
import numpy as np
from loader import load, __file__ as where
assert where.startswith(sys.argv[1]), where
model = load(sys.argv[1], threads=1)
x = np.load(sys.argv[2])
np.save(sys.argv[3], model(x)["y"])
samples = model.time(repeat=2)
assert len(samples) == 2 and all(s > 0 for s in samples)
assert model.inputs == [{"name": "x", "shape": [1, 64], "dtype": "float32"}]
assert not glob.glob(tempfile.gettempdir() + "/tunefarm-*"), "a folder was left behind"
"""


@pytest.fixture
def x(tmp_path: Path) -> np.ndarray:
    array = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", array)
    return array


def run(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-I", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary)},
    )


def test_a_fresh_process_runs_it_with_its_own_loader(
    compiled: Compiled, tmp_path: Path, x: np.ndarray
) -> None:
    done = run("-c", IN_A_FRESH_PROCESS, str(compiled[0].path), "x.npy", "y.npy", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), load(compiled[0].path, threads=1)(x)["y"])


@pytest.mark.exhaustive
def test_python_runs_the_file_itself(compiled: Compiled, tmp_path: Path, x: np.ndarray) -> None:
    path = str(compiled[0].path)
    done = run(
        path, "--input", "x=x.npy", "--output-dir", "out", "--time", "2", "--threads", "1", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "y: float32 [1, 10] -> out/y.npy" in done.stdout
    assert "ms of 2 samples on 1 threads" in done.stdout
    assert np.load(tmp_path / "out" / "y.npy").shape == (1, 10)
    done = run(path, "--input", "z=x.npy", folder=tmp_path)
    assert done.returncode == 1
    assert "there is no input 'z'" in done.stderr
    done = run(path, folder=tmp_path)
    assert done.returncode == 1
    assert "give --input for each of: x (float32 [1, 64])" in done.stderr
    done = run(path, "--time", "0", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the number of samples")


def test_wrong_inputs_are_told_in_words(compiled: Compiled, x: np.ndarray) -> None:
    model = load(compiled[0].path)
    cases: list[tuple[Callable[[], object], str]] = [
        (model, r"input 'x' is missing; the model has 'x' \(float32 \[1, 64\]\)"),
        (lambda: model(y=x), "there is no input 'y'"),
        (lambda: model(x, x), "2 inputs were given"),
        (lambda: model(x, x=x), "by position and by name"),
        (
            lambda: model(x.astype(np.float64)),
            r"is float64, but the model takes float32: .*astype\('float32'\)",
        ),
        (lambda: model(x[:, :3]), r"has shape \[1, 3\], but the model takes \[1, 64\]"),
        (lambda: model(x[0]), r"has shape \[64\]"),
    ]
    for call, message in cases:
        with pytest.raises(ArtifactInputError, match=message):
            call()
    with pytest.raises(ValueError, match="at least 1"):
        load(compiled[0].path, threads=0)


def test_any_memory_layout_will_do(compiled: Compiled, x: np.ndarray) -> None:
    model = load(compiled[0].path)
    strided = np.repeat(x, 2, axis=1)[:, ::2]
    assert not strided.flags.c_contiguous
    np.testing.assert_array_equal(model(strided)["y"], model(x)["y"])


def test_threads_take_turns(compiled: Compiled) -> None:
    model = load(compiled[0].path, threads=1)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((1, 64)).astype(np.float32) for _ in range(4)]
    expected = [model(array)["y"] for array in inputs]
    right: list[bool] = []

    def work(number: int) -> None:
        outputs = [model(inputs[number])["y"] for _ in range(50)]
        right.append(all(np.array_equal(output, expected[number]) for output in outputs))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 4


def test_two_loaded_at_once_do_not_meet(compiled: Compiled, x: np.ndarray) -> None:
    first, second = load(compiled[0].path), load(compiled[0].path)
    expected = first(x)["y"]
    first(x * 2)
    np.testing.assert_array_equal(second(x)["y"], expected)
