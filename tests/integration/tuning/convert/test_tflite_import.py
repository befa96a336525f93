"""TFLite files through the whole import: checked, loaded by ONNX Runtime, imported into TVM, converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litert_outputs
import numpy as np
import onnx
import pytest
from onnx_models import GraphBuilder
from onnx_reference import UNOPTIMISED, built_outputs
from tflite_writer import TfliteWriter
from tflite_zoo import ZOO
from tflite_zoo.custom import CUSTOM

from tunefarm_tuning import ImportLimits, import_model, import_tflite
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.frontend.conversion import check_litert_outputs, check_tflite_outputs, convert_tflite
from tunefarm_tuning.frontend.onnx.conversion_child import convert_file
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.reference.single_run import run_in_onnxruntime
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

LIMITS = ImportLimits(memory_bytes=4 << 30)
OUTPUTS = litert_outputs.recorded()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return tmp_path / "model.tflite"


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    "name",
    [
        "a_block_with_a_gate",
        "quantized_conv_of_padded",
        "transpose_conv_same",
        "resize_nearest_neighbor_5_to_8_aligncorners",
        "bands_of_a_spectrum",
        "lstm_with_peepholes",
        "bidirectional_lstm_of_two_inputs_without_input_gate",
        "bidirectional_lstm_with_projection",
        "bidirectional_rnn_merged",
        "conv_3d_transpose_same_strided",
        "reduce_window_product",
        "in_blocks_same",
        "sequences_reversed",
    ],
)
def test_tvm_computes_what_litert_does(name: str, stored: Path) -> None:
    case = ZOO[name]()
    stored.write_bytes(case.data)
    (output,) = built_outputs(load_relax(stored, Binding(), UNOPTIMISED), list(case.feeds()), stored.parent)
    (expected,) = OUTPUTS[name]
    step = 1.01 if expected.dtype == np.int8 else 1e-4
    np.testing.assert_allclose(output.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=step)


def test_the_compiled_network_keeps_tflite_s_layout(stored: Path) -> None:
    """The transposes that ONNX needs, and those of the layout pass, leave nothing."""
    stored.write_bytes(ZOO["a_block_with_a_gate"]().data)
    module = load_relax(stored, Binding(), Target(kind="llvm")).module
    kernels = [variable.name_hint for variable in module.get_global_vars()]
    assert len([name for name in kernels if "conv2d" in name]) == 4
    assert not [name for name in kernels if "transpose" in name], kernels


def test_a_file_is_imported_as_it_is(stored: Path) -> None:
    stored.write_bytes(ZOO["quantized_conv_of_padded"]().data)
    model = import_model(stored, limits=LIMITS)
    assert [(spec.shape, spec.dtype) for spec in model.inputs] == [((1, 6, 6, 3), "int8")]
    assert [(spec.shape, spec.dtype) for spec in model.outputs] == [((1, 6, 6, 4), "int8")]
    assert dict(model.operators)["Conv"] == 1
    assert model.path == stored


@pytest.mark.exhaustive
def test_a_file_is_imported_for_another_shape(stored: Path) -> None:
    stored.write_bytes(ZOO["open_dimensions"]().data)
    model = import_model(stored, shapes={"t0": (2, 10, 3)}, limits=LIMITS)
    assert model.binding.shapes == {"t0": (2, 10, 3)}
    assert [spec.shape for spec in model.inputs] == [(2, 10, 3)]
    assert [spec.shape for spec in model.outputs] == [(2, 5, 4), (20, 2)]
    (x,) = random_inputs(model.inputs, seed=0)
    expected = run_in_onnxruntime(model, [x], LIMITS)
    outputs = built_outputs(load_relax(stored, model.binding, UNOPTIMISED), [x], stored.parent)
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, wanted, atol=1e-5)
    with pytest.raises(InvalidModelError) as unknown:
        import_model(stored, shapes={"y": (2, 10, 3)}, limits=LIMITS)
    assert unknown.value.code == "unknown-input"
    with pytest.raises(InvalidModelError) as bad:
        import_model(stored, shapes={"t0": (2, 10)}, limits=LIMITS)
    assert bad.value.code == "bad-shape"


@pytest.mark.exhaustive
def test_an_open_size_of_one_has_to_be_given(stored: Path) -> None:
    """A sound of one sample is no answer; a batch of one is. The proposal runs."""
    net = TfliteWriter()
    sound = net.input((1, 1), signature=(-1, -1))
    stored.write_bytes(net.data([net.op("NEG", [sound], (1, 1), signature=(-1, -1))]))
    with pytest.raises(
        InvalidModelError, match=r"shape is \[\?, \?\]; .* runs, for example, with: --shape t0=1,"
    ) as caught:
        import_model(stored, limits=LIMITS)
    assert (caught.value.code, caught.value.fields["dimension"]) == ("unknown-dimension", 1)
    # What an earlier release imported with a size of 1 can be loaded, and the file can be converted.
    assert load_relax(stored, Binding(), UNOPTIMISED).inputs[0].shape == (1, 1)
    assert import_tflite(stored, stored.with_name("net.onnx"), limits=LIMITS).inputs[0].shape == (1, 1)
    proposed = caught.value.fields["proposal"]["shapes"]
    model = import_model(stored, shapes=proposed, limits=LIMITS)
    assert [list(spec.shape) for spec in (*model.inputs, *model.outputs)] == [proposed["t0"]] * 2
    assert proposed["t0"][1] > 1


def test_a_broken_file_is_an_error(stored: Path) -> None:
    data = ZOO["quantized_network"]().data
    stored.write_bytes(data[: len(data) // 2])
    with pytest.raises(InvalidModelError) as caught:
        import_model(stored, limits=LIMITS)
    assert caught.value.code == "invalid-tflite"


def test_a_file_becomes_an_onnx_file(stored: Path, tmp_path: Path) -> None:
    """Compared with LiteRT where that is installed."""
    net = TfliteWriter()
    stored.write_bytes(net.data([net.op("RELU", [net.input((2, 3))], (2, 3))]))
    model = import_tflite(stored, tmp_path / "net.onnx", limits=LIMITS)
    assert model.path == tmp_path / "net.onnx"
    assert model.operators == (("Relu", 1),)
    onnx.checker.check_model(onnx.load(tmp_path / "net.onnx"))
    right = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)
    check_tflite_outputs(model, [right], [right], quantized=False)
    with pytest.raises(InvalidModelError) as caught:
        check_tflite_outputs(model, [right + np.float32(0.02)], [right], quantized=False)
    assert caught.value.code == "conversion-differs"
    # Where LiteRT computes with integers, a small difference is its rounding; a large one is not.
    check_tflite_outputs(model, [right + np.float32(0.02)], [right], quantized=True)
    with pytest.raises(InvalidModelError):
        check_tflite_outputs(model, [right + 1], [right], quantized=True)


@pytest.mark.exhaustive
def test_a_network_with_state_is_not_compared_with_litert(stored: Path, tmp_path: Path) -> None:
    net = TfliteWriter()
    handle = net.op("VAR_HANDLE", [], (), "resource", "VarHandleOptions", {"SharedName": "sum"})
    old = net.op("READ_VARIABLE", [handle], (2,), options="ReadVariableOptions")
    total = net.op("ADD", [old, net.input((2,))], (2,), options="AddOptions")
    net.op_of("ASSIGN_VARIABLE", [handle, total], [])
    stored.write_bytes(net.data([net.op("NEG", [total], (2,))]))
    conversion = convert_tflite(stored, tmp_path / "net.onnx", limits=LIMITS)
    assert conversion.compared == "not compared: LiteRT keeps the state itself"
    assert [spec.name for spec in conversion.model.inputs][1:] == ["sum"]
    assert [spec.name for spec in conversion.model.outputs][1:] == ["sum_next"]


@pytest.mark.exhaustive
def test_what_litert_lacks_is_converted_all_the_same(stored: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    stored.write_bytes(CUSTOM["resampled"]().data)
    with pytest.warns(UserWarning, match="not compared with LiteRT: LiteRT cannot run"):
        import_tflite(stored, tmp_path / "net.onnx", limits=LIMITS)


@pytest.mark.exhaustive
def test_of_a_quantized_network_an_index_is_not_compared(stored: Path, tmp_path: Path) -> None:
    """LiteRT's rounding decides which of two equal numbers is the largest."""
    net = TfliteWriter()
    x = net.op("RELU", [net.input((2, 3))], (2, 3))
    axis = net.constant(np.array(1, np.int32))
    stored.write_bytes(
        net.data([x, net.op("ARG_MAX", [x, axis], (2,), "int64", "ArgMaxOptions", {"OutputType": 4})])
    )
    model = convert_tflite(stored, tmp_path / "net.onnx", limits=LIMITS).model
    index = model.outputs[1].name
    values, right, wrong = np.ones((2, 3), np.float32), np.array([0, 1]), np.array([0, 2])
    assert check_tflite_outputs(model, [values, wrong], [values, right], quantized=True) == (index,)
    assert check_tflite_outputs(model, [values, right], [values, right], quantized=False) == ()
    refused: list[tuple[list[Any], bool]] = [
        ([values, wrong], False),
        ([values + 1, right], True),
        ([values, right[:1]], True),
        ([values], True),
    ]
    for results, quantized in refused:
        with pytest.raises(InvalidModelError) as caught:
            check_tflite_outputs(model, results, [values, right], quantized=quantized)
        assert caught.value.code == "conversion-differs"


@pytest.mark.exhaustive
def test_a_network_that_enlarges_rounding_may_differ_by_it(tmp_path: Path) -> None:
    """Its output is nothing but the rounding of two ways to add up."""
    g = GraphBuilder(seed=3)
    x, weights = (
        g.input("x", [2, 512]),
        np.random.default_rng(3).standard_normal((512, 16)).astype(np.float32),
    )
    left, right = g.node("Split", x, g.ints(101, 411), outputs=2, axis=1)
    halves = [
        g.node("MatMul", part, g.constant(rows))
        for part, rows in ((left, weights[:101]), (right, weights[101:]))
    ]
    rounding = g.node("Sub", g.node("MatMul", x, g.constant(weights)), g.node("Add", *halves))
    g.output(g.node("Mul", rounding, g.constant(np.array(1e4, np.float32))))
    path = tmp_path / "model.onnx"
    path.write_bytes(g.model().SerializeToString())
    model, limits = import_model(path), ImportLimits()
    inputs = random_inputs(model.inputs, seed=0)
    results = run_in_onnxruntime(model, inputs, limits)
    exact = [np.zeros_like(result) for result in results]
    with pytest.raises(InvalidModelError):
        check_tflite_outputs(model, results, exact, quantized=False)
    assert check_litert_outputs(model, inputs, results, exact, limits, quantized=False) == ()
    wrong = [array + np.float32(100) for array in exact]
    with pytest.raises(InvalidModelError, match="different results than LiteRT"):
        check_litert_outputs(model, inputs, results, wrong, limits, quantized=False)


def test_what_is_no_tflite_file_is_not_converted(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as missing:
        import_tflite(stored, tmp_path / "net.onnx")
    assert missing.value.code == "no-such-file"
    stored.write_bytes(b"something else")
    with pytest.raises(InvalidModelError) as other:
        import_tflite(stored, tmp_path / "net.onnx")
    assert other.value.code == "not-tflite"
    with pytest.raises(InvalidInputError) as same:
        import_tflite(stored, stored)
    assert same.value.code == "same-file"
    assert stored.read_bytes() == b"something else"


def test_an_unwritable_path_is_named(stored: Path, tmp_path: Path) -> None:
    net = TfliteWriter()
    stored.write_bytes(net.data([net.op("RELU", [net.input((2, 3))], (2, 3))]))
    for path in (tmp_path / "none" / "net.onnx", tmp_path):
        with pytest.raises(InvalidInputError) as caught:
            import_tflite(stored, path)
        assert caught.value.code == "cannot-write"
        assert str(path) in caught.value.message
    assert list(tmp_path.iterdir()) == [stored]


def test_a_child_that_cannot_write_says_so(stored: Path, tmp_path: Path) -> None:
    net = TfliteWriter()
    stored.write_bytes(net.data([net.op("RELU", [net.input((2, 3))], (2, 3))]))
    with pytest.raises(InvalidInputError, match=r"^net\.onnx cannot be written: No space left") as caught:
        convert_file({"path": str(stored), "format": "tflite", "to": "/dev/full", "name": "net.onnx"})
    assert caught.value.code == "cannot-write"


def test_a_conversion_that_is_refused_replaces_nothing(stored: Path, tmp_path: Path) -> None:
    """It is converted, and then not imported; a comparison that fails comes later still."""
    net = TfliteWriter()
    stored.write_bytes(net.data([net.op("RELU", [net.input((2, 3))], (2, 3))]))
    path = tmp_path / "net.onnx"
    path.write_bytes(b"from before")
    with pytest.raises(InvalidModelError):
        import_tflite(stored, path, limits=ImportLimits(memory_bytes=4 << 30, nodes=0))
    assert path.read_bytes() == b"from before"
    assert set(tmp_path.iterdir()) == {stored, path}
