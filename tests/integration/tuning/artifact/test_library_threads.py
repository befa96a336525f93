"""The threads that an artifact's library brings, and how they get on with other threads, processes and forks."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.disturbed import load as other_work
from onnx import TensorProto, helper, numpy_helper
from plain_artifacts import LOADED_TWICE

import tunefarm_tuning as tt
from tunefarm_tuning.artifact.loader import TunedModel, load
from tunefarm_tuning.artifact.threads import LibraryThreads

CHANNELS, SIZE = 32, 40

PROGRAM = (
    LOADED_TWICE
    + """
assert tasks() <= 2, tasks()  # this one and the library's
assert same(more.run(inputs))
assert tasks() <= 2 + 2, tasks()
def each_task(act):
    for task in os.listdir("/proc/self/task"):
        try:
            act(int(task))
        except ProcessLookupError:  # it has ended meanwhile
            pass
def check_limit(task):
    assert os.sched_getaffinity(task) == limited
each_task(check_limit)
each_task(lambda task: os.sched_setaffinity(task, everywhere))
def work():
    assert same(model.run(inputs))
    assert same(more.run(inputs))
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
until = time.monotonic() + 60
while tasks() > 2 + 2 and time.monotonic() < until:
    time.sleep(0.01)  # a thread that was joined is listed a moment longer
assert tasks() <= 2 + 2, tasks()  # no caller brings more
assert dict(os.environ) == before
pid = os.fork()
if pid == 0:
    for _ in range(3):
        assert same(model.run(inputs)) and same(more.run(inputs))
    assert tasks() <= 2 + 2, tasks()
    sys.exit(7)  # as a program ends
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
until = time.monotonic() + 60
while tasks() > 1 and time.monotonic() < until:
    time.sleep(0.01)
assert tasks() == 1, tasks()  # without calls, they end
assert same(more.run(inputs)) and same(model.run(inputs))
"""
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("convolutions")
    rng = np.random.default_rng(0)
    names = ["x", "first", "second", "y"]
    weights = [
        numpy_helper.from_array(
            rng.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32) * 0.05, f"w{number}"
        )
        for number in range(3)
    ]
    nodes = [
        helper.make_node("Conv", [names[number], f"w{number}"], [names[number + 1]], pads=[1, 1, 1, 1])
        for number in range(3)
    ]
    shape = (1, CHANNELS, SIZE, SIZE)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "convolutions", values[:1], values[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
        folder / "net.onnx",
    )
    artifact = folder / "net.tunefarm"
    tt.compile(
        tt.import_model(folder / "net.onnx"),
        "llvm -num-cores=2",
        output=artifact,
        baseline=False,
        other_shapes=False,
        goal_sec=0.0,
    )
    return artifact


def loaded(path: Path, threads: int) -> TunedModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(path, threads=threads)


def test_a_librarys_threads_are_few_and_bound_to_nothing_and_a_fork_has_its_own(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", PROGRAM, str(path)],
        capture_output=True, text=True, check=False, timeout=300, env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_results_are_the_same_on_any_number_of_threads_beside_other_work(path: Path) -> None:
    models = [loaded(path, count) for count in (1, 2, 3, 8)]
    assert all(isinstance(model._threads, LibraryThreads) for model in models)
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, SIZE, SIZE)).astype(np.float32)
    expected = models[0](x)["y"]
    rights: list[bool] = []

    def work() -> None:
        for _ in range(20):
            rights.extend(np.array_equal(model(x)["y"], expected) for model in models)

    with other_work("two processes"):
        callers = [threading.Thread(target=work) for _ in range(3)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert rights == [True] * 20 * 3 * len(models)


def test_a_process_without_room_for_threads_computes_by_itself(path: Path) -> None:
    program = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); import numpy as np; from loader import load; "
        "models = [load(sys.argv[1], threads=count) for count in (1, 4)]; "
        "x = np.ones(models[0].inputs[0]['shape'], 'float32'); expected = models[0](x)['y']; "
        "limit = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (4 << 20); "
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit)); "
        "assert np.array_equal(models[1](x)['y'], expected); print('done')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", program, str(path)],
        capture_output=True, text=True, check=False, timeout=300, env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout == "done\n", done.stderr
