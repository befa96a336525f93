"""A network is run with each further set of shapes, in one session where its file leaves them open."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import onnxruntime
import pytest

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.shape_trials import run_further_shapes
from tunefarm_tuning.workload.binding import Binding

GATHER = "(float[n, 3] x, float[2, 3] z) => (float[2, 3] y) <int64[2] i = {1, 5}> { g = Gather(x, i)  y = Add(g, z) }"
BRANCH = """(float[n, 3] x, float[2, 3] z) => (float[m, 3] y) <int64 zero = {0}, int64 five = {5}, int64[2] i = {1, 4}> {
  s = Shape(x)  n = Gather(s, zero)  few = Less(n, five)
  y = If(few) <then_branch = t () => (float[p, 3] a) { a = Gather(x, i) }, else_branch = e () => (float[q, 3] b) { b = Neg(x) }>
}"""
TOWER = "(float[n, n] x) => (float[n, n] y) { a = MatMul(x, x)  b = MatMul(a, x)  c = MatMul(b, a)  y = MatMul(c, b) }"


class Sessions:
    """Loads sessions, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def load(self, source: bytes) -> Any:
        self.count += 1
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def written(graph: str, folder: Path) -> str:
    path = folder / "net.onnx"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\nnet {graph}')
    path.write_bytes(model.SerializeToString())
    return str(path)


def sizes(*numbers: int) -> list[Binding]:
    return [Binding.of({"x": (number, 3)}, {}) for number in numbers]


def test_all_shapes_of_an_open_file_run_in_one_session(sessions: Sessions, tmp_path: Path) -> None:
    assert run_further_shapes(written(GATHER, tmp_path), sizes(9, 6, 32), sessions.load, budget_sec=60) == 3
    assert sessions.count == 1


def test_the_error_names_the_shapes_that_cannot_run(sessions: Sessions, tmp_path: Path) -> None:
    path = written(GATHER, tmp_path)
    with pytest.raises(InvalidModelError, match=r"^with the shapes x=4,3: .*Gather.* idx=5 ") as caught:
        run_further_shapes(path, sizes(9, 4, 6), sessions.load, budget_sec=60)
    assert caught.value.code == "index-out-of-range"
    assert caught.value.fields["operator"] == "Gather"


def test_a_network_with_branches_is_another_one_for_each_set(sessions: Sessions, tmp_path: Path) -> None:
    path = written(BRANCH, tmp_path)
    assert run_further_shapes(path, sizes(9, 6), sessions.load, budget_sec=60) == 2
    assert sessions.count == 2
    with pytest.raises(InvalidModelError, match=r"^with the shapes x=4,3: .*Gather"):
        run_further_shapes(path, sizes(9, 4), sessions.load, budget_sec=60)


def test_it_stops_when_the_time_is_over(sessions: Sessions, tmp_path: Path) -> None:
    path = written(TOWER, tmp_path)
    bindings = [Binding.of({"x": (size, size)}, {}) for size in (5000, 8)]  # the large one takes a minute
    begin = time.monotonic()
    assert run_further_shapes(path, bindings, sessions.load, budget_sec=1.0) == 1
    assert time.monotonic() - begin < 30
    assert run_further_shapes(path, bindings, sessions.load, budget_sec=0.0) == 0
    assert run_further_shapes(path, [], sessions.load, budget_sec=1.0) == 0


def test_a_lack_of_memory_is_left_to_the_compile(tmp_path: Path) -> None:
    def load(_: bytes) -> Any:
        raise MemoryError

    assert run_further_shapes(written(GATHER, tmp_path), sizes(9, 6), load, budget_sec=60) == 0
