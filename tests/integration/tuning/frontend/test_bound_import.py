"""Networks with settings, branches and loops: imported with values, compiled, and compared with ONNX Runtime on the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import tunefarm_tuning
from tunefarm_tuning import import_model
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.core.errors import InvalidInputError

NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 16] x, int64 sr, bool loud) => (float[n, 16] y) <int64[1] none = {-1}, int64 three = {3}, bool go = {1}> {
  rate = Constant <value = int64[1] {16000}> ()
  flat = Reshape(sr, none)
  is_fast = Equal(flat, rate)
  scaled = If(is_fast) <
    then_branch = fast () => (float[n, 16] a) { a = Neg(x) },
    else_branch = slow () => (float[m, 16] a) { a = Concat <axis = 0> (x, x) }
  >
  grown = Loop(three, go, scaled) <body = step (int64 i, bool c, float[n, 16] v) => (bool s, float[n, 16] w) {
    s = Identity(c)  w = Add(v, x)
  }>
  y = If(loud) <
    then_branch = t () => (float[n, 16] b) { b = Exp(grown) }, else_branch = e () => (float[n, 16] b) { b = Tanh(grown) }
  >
}"""


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.parser.parse_model(NETWORK).SerializeToString())
    return path


def test_the_artifact_computes_what_the_file_does_with_the_values(network: Path, tmp_path: Path) -> None:
    model = import_model(network, shapes={"x": (4, 16)}, values={"sr": np.int64(16000)})
    assert [(spec.name, spec.shape) for spec in model.inputs] == [("x", (4, 16)), ("loud", ())]
    assert dict(model.operators)["Add"] == 3
    assert not {"If", "Loop"} & dict(model.operators).keys()
    assert type(model).from_json(model.to_json(), model.path) == model
    tunefarm_tuning.compile(model, "host", output=tmp_path / "net.tunefarm", baseline=False)
    tuned = load(tmp_path / "net.tunefarm")
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((4, 16), dtype=np.float32)
    for loud in (True, False):
        feeds = {"x": x, "loud": np.array(loud)}
        (expected,) = session.run(None, {**feeds, "sr": np.array(16000)})
        (result,) = tuned.run(feeds).values()
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


GUARDED = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 6] x, int64[1, 2] i, int64[1, 2] d, bool on) => (float[1, 2] y) {
  y = If(on) <
    then_branch = t () => (float[1, 2] a) { twice = Add(i, i)  at = Div(twice, d)  a = GatherElements <axis = 1> (x, at) },
    else_branch = e () => (float[1, 2] a) { a = Cast <to = 1> (i) }
  >
}"""


@pytest.mark.exhaustive
def test_a_branch_that_is_not_taken_divides_and_gathers_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.parser.parse_model(GUARDED).SerializeToString())
    tunefarm_tuning.compile(import_model(path), "host", output=tmp_path / "net.tunefarm", baseline=False)
    tuned = load(tmp_path / "net.tunefarm")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((1, 6), dtype=np.float32)
    smallest = np.iinfo(np.int64).min // 2  # doubled, and divided by -1, it overflows
    for indices, divisors, is_taken in (
        ([4, -3], [2, 1], True),
        ([5, -1], [-2, 7], True),
        ([9, -900], [0, 1], False),
        ([smallest, 1], [-1, 0], False),
    ):
        feeds = {"x": x, "i": np.array([indices]), "d": np.array([divisors]), "on": np.array(is_taken)}
        (expected,) = session.run(None, feeds)
        (result,) = tuned.run(feeds).values()
        np.testing.assert_array_equal(result, expected)


def test_what_is_left_open_is_proposed_with_the_value_that_the_network_compares(network: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        import_model(network)
    assert caught.value.code == "unknown-dimension"
    assert caught.value.fields["proposal"]["values"] == {"sr": 16000, "loud": True}
    assert "--value sr=16000" in caught.value.message


def test_a_branch_of_another_shape_needs_the_value(network: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        import_model(network, shapes={"x": (4, 16)})
    assert caught.value.code == "unequal-branches"
    assert "--value sr=16000" in caught.value.message
