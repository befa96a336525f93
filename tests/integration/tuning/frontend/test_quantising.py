"""A float network is quantised on samples, as far as the accuracy asked for allows, and compiled to kernels that multiply bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx_models import GraphBuilder
from onnxruntime import InferenceSession

import tunefarm_tuning
from tunefarm_tuning import Model, extract_tasks, import_model, quantise_model
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.process.errors import ChildClosed
from tunefarm_tuning.process.model_child import ImportLimits

TAKE_ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
VNNI = "llvm -mcpu=znver4 -num-cores=2"


def conv_net(*, spread: float = 0.0) -> onnx.ModelProto:
    """Three convolutions, a residual sum and a classifier; `spread` above 0 gives the second convolution one huge input channel."""
    g = GraphBuilder(seed=5)
    y = g.input("x", [1, 8, 12, 12])
    y = g.node("Relu", g.node("Conv", y, g.weight(16, 8, 3, 3), g.weight(16), pads=[1, 1, 1, 1]))
    scales = np.ones((1, 16, 1, 1), np.float32)
    scales[0, 0] += spread
    y = g.node("Mul", y, g.constant(scales))
    z = g.node("Conv", y, g.weight(16, 16, 3, 3), g.weight(16), pads=[1, 1, 1, 1])
    z = g.node("Mul", z, g.constant(np.float32(1 / (1 + spread))))
    y = g.node("Relu", g.node("Add", z, y))
    y = g.node("Conv", y, g.weight(32, 16, 1, 1), g.weight(32))
    y = g.node("Flatten", g.node("GlobalAveragePool", y))
    g.output(g.linear(y, 32, 10), [1, 10])
    return g.model()


def saved(network: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(network.SerializeToString())
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return import_model(saved(conv_net(), tmp_path_factory.mktemp("conv") / "conv.onnx"))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "samples.npz"
    np.savez(path, x=np.random.default_rng(0).standard_normal((12, 1, 8, 12, 12)).astype(np.float32))
    return path


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_products_multiply_bytes_and_outputs_stay_close(model: Model, samples: Path, tmp_path: Path) -> None:
    quantised = quantise_model(model, samples, tmp_path / "q.onnx")
    facts = quantised.quantisation
    assert facts is not None
    assert (facts.products, facts.kept, facts.sets, facts.between) == (4, 0, 12, True)
    assert facts.bytes_before == 4 * facts.bytes_after
    assert 0 < facts.worst.mean <= facts.max_error
    assert facts.worst.mean <= facts.worst.largest
    assert (quantised.inputs, quantised.outputs) == (model.inputs, model.outputs)
    assert quantised.sha256 != model.sha256
    assert operators(quantised.path).count("QuantizeLinear") >= 4
    arrays = np.load(samples)["x"]
    float_net, byte_net = (
        InferenceSession(m.path, providers=["CPUExecutionProvider"]) for m in (model, quantised)
    )
    expected = np.concatenate([float_net.run(None, {"x": x})[0] for x in arrays])
    given = np.concatenate([byte_net.run(None, {"x": x})[0] for x in arrays])
    error = np.abs(given - expected).mean() / np.sqrt(np.square(expected).mean())
    assert error == pytest.approx(facts.worst.mean, rel=0.3), "what is reported is what it costs"


def test_the_artifact_computes_in_bytes_and_its_report_says_the_cost(
    model: Model, samples: Path, tmp_path: Path
) -> None:
    quantised = quantise_model(model, samples, tmp_path / "q.onnx")
    names = [task.workload.name for task in extract_tasks(quantised, VNNI, precision="int8")]
    assert not any(name.startswith("fused_conv2d") for name in names), names
    artifact = tunefarm_tuning.compile(
        quantised, output=tmp_path / "net", limits=TAKE_ANY_SPEED, samples=samples, baseline=False
    )
    assert quantised.quantisation is not None
    precision = artifact.report["precision"]
    assert precision["name"] == "int8"
    assert precision["weights"]["stored"] == 4
    assert precision["accuracy"]["stored"]["mean_rel_error"] == quantised.quantisation.worst.mean
    assert precision["quantisation"] == quantised.quantisation.to_json()
    assert artifact.manifest["precision"] == "int8"
    x = np.load(samples)["x"][0]
    expected = InferenceSession(model.path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    given = next(iter(load(artifact.path).run({"x": x}).values()))
    assert np.abs(given - expected).mean() <= 0.1 * np.sqrt(np.square(expected).mean())


@pytest.mark.exhaustive
def test_layers_that_lose_too_much_stay_float(samples: Path, tmp_path: Path) -> None:
    model = import_model(saved(conv_net(spread=300.0), tmp_path / "spread.onnx"))
    loose = quantise_model(model, samples, tmp_path / "loose.onnx", max_error=1.0).quantisation
    assert loose is not None
    assert loose.kept == 0
    limit = 0.6 * loose.worst.mean
    strict = quantise_model(model, samples, tmp_path / "strict.onnx", max_error=limit).quantisation
    assert strict is not None
    assert strict.worst.mean <= limit
    assert (strict.between, strict.kept) != (True, 0)
    assert strict.products + strict.kept == 4
    assert strict.products >= 1


def test_what_cannot_be_that_accurate_is_refused_with_both_numbers(
    model: Model, samples: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidModelError, match="of 4 products stay float32") as caught:
        quantise_model(model, samples, tmp_path / "q.onnx", max_error=1e-7)
    assert caught.value.code == "too-inaccurate"
    assert caught.value.fields["error"] > caught.value.fields["max_error"] == 1e-7
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize("max_error", [0.0, -1.0, 1.5, float("nan"), float("inf")])
def test_a_limit_that_is_no_share_is_refused(
    model: Model, samples: Path, tmp_path: Path, max_error: float
) -> None:
    with pytest.raises(InvalidInputError, match="above 0 and at most 1") as caught:
        quantise_model(model, samples, tmp_path / "q.onnx", max_error=max_error)
    assert caught.value.code == "invalid-max-error"


def test_samples_are_needed_and_must_fit(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs samples") as caught:
        quantise_model(model, [], tmp_path / "q.onnx")
    assert caught.value.code == "samples-needed"
    np.savez(tmp_path / "other.npz", x=np.zeros((1, 8, 12, 11), np.float32))
    with pytest.raises(InvalidInputError) as caught:
        quantise_model(model, tmp_path / "other.npz", tmp_path / "q.onnx")
    assert caught.value.code == "sample-shape"
    assert not (tmp_path / "q.onnx").exists()


def test_a_quantised_network_and_one_without_products_are_refused(
    model: Model, samples: Path, tmp_path: Path
) -> None:
    once = quantise_model(model, samples, tmp_path / "once.onnx")
    with pytest.raises(InvalidModelError, match="quantised already") as caught:
        quantise_model(once, samples, tmp_path / "twice.onnx")
    assert caught.value.code == "already-quantised"
    g = GraphBuilder()
    g.output(g.node("Relu", g.input("x", [1, 8, 12, 12])), [1, 8, 12, 12])
    plain = import_model(saved(g.model(), tmp_path / "plain.onnx"))
    with pytest.raises(InvalidModelError, match="nothing to compute in int8") as caught:
        quantise_model(plain, samples, tmp_path / "q.onnx")
    assert caught.value.code == "nothing-to-quantise"


@pytest.mark.exhaustive
def test_one_form_serves_all_sets_of_shapes(tmp_path: Path) -> None:
    g = GraphBuilder(seed=2)
    y = g.node(
        "Relu", g.node("Conv", g.input("x", ["n", 8, 12, 12]), g.weight(16, 8, 3, 3), pads=[1, 1, 1, 1])
    )
    g.output(y, ["n", 16, 12, 12])
    model = import_model(saved(g.model(), tmp_path / "open.onnx"), shapes={"x": "1|4,8,12,12"})
    rng = np.random.default_rng(0)
    for batch in (1, 4):
        np.savez(tmp_path / f"{batch}.npz", x=rng.standard_normal((batch, 8, 12, 12)).astype(np.float32))
    quantised = quantise_model(model, [tmp_path / "1.npz", tmp_path / "4.npz"], tmp_path / "q.onnx")
    assert quantised.quantisation is not None
    assert quantised.quantisation.sets == 2
    artifact = tunefarm_tuning.compile(
        quantised, output=tmp_path / "net", limits=TAKE_ANY_SPEED, baseline=False, other_shapes=False
    )
    float_net = InferenceSession(model.path, providers=["CPUExecutionProvider"])
    loaded = load(artifact.path)
    for batch in (1, 4):
        x = np.load(tmp_path / f"{batch}.npz")["x"]
        expected = float_net.run(None, {"x": x})[0]
        (given,) = loaded.run({"x": x}).values()
        assert np.abs(given - expected).mean() <= 0.05 * np.sqrt(np.square(expected).mean())


@pytest.mark.exhaustive
def test_values_that_inputs_are_bound_to_stay_bound(tmp_path: Path) -> None:
    g = GraphBuilder(seed=2)
    scale = g.input("scale", [], TensorProto.FLOAT)
    y = g.node("Mul", g.linear(g.input("x", [1, 16]), 16, 16), scale)
    g.output(g.linear(y, 16, 8), [1, 8])
    model = import_model(saved(g.model(), tmp_path / "scaled.onnx"), values={"scale": 0.5})
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((8, 1, 16)).astype(np.float32))
    quantised = quantise_model(model, tmp_path / "x.npz", tmp_path / "q.onnx")
    artifact = tunefarm_tuning.compile(
        quantised, output=tmp_path / "net", limits=TAKE_ANY_SPEED, baseline=False
    )
    assert [spec["name"] for spec in artifact.manifest["inputs"]] == ["x"]


@pytest.mark.exhaustive
def test_an_old_opset_is_read(samples: Path, tmp_path: Path) -> None:
    network = conv_net()
    network.opset_import[0].version = 11
    model = import_model(saved(network, tmp_path / "old.onnx"))
    quantised = quantise_model(model, samples, tmp_path / "q.onnx")
    weights = {tensor.name: tensor for tensor in onnx.load(quantised.path).graph.initializer}
    scales = [numpy_helper.to_array(tensor) for name, tensor in weights.items() if name.endswith("_scale")]
    assert any(scale.size == 16 for scale in scales), "a scale per channel"


def test_a_compile_of_int8_takes_a_quantised_network_alone(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="quantise_model") as caught:
        tunefarm_tuning.compile(model, VNNI, output=tmp_path / "net", precision="int8")
    assert caught.value.code == "not-quantised"
    with pytest.raises(InvalidInputError, match="int8 dot product") as caught:
        extract_tasks(model, "llvm -mcpu=sandybridge", precision="int8")
    assert caught.value.code == "unsupported-precision"


def test_it_ends_with_its_limits_and_when_cancelled(model: Model, samples: Path, tmp_path: Path) -> None:
    limits = ImportLimits(memory_bytes=8 << 30, timeout_sec=1e-4, cpu_sec=60)
    with pytest.raises((InvalidModelError, InvalidInputError)) as caught:
        quantise_model(model, samples, tmp_path / "q.onnx", limits=limits)
    assert caught.value.code in ("quantise-timeout", "samples-timeout")
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(ChildClosed):
        quantise_model(model, samples, tmp_path / "q.onnx", cancellation=cancelled)
    assert list(tmp_path.iterdir()) == []


def resizing(opset: int) -> onnx.ModelProto:
    """A convolution and a resize, of an opset whose positions ONNX's converter changes."""
    g = GraphBuilder(seed=2)
    y = g.node("Conv", g.input("x", [1, 8, 10, 10]), g.weight(16, 8, 3, 3), pads=[1, 1, 1, 1])
    scale = 2.0 if opset < 10 else 0.7
    size = int(10 * scale)
    y = g.node(
        "Upsample" if opset < 10 else "Resize",
        y,
        g.constant(np.array([1, 1, scale, scale], np.float32)),
        mode="linear" if opset < 10 else "nearest",
    )
    g.output(y, [1, 16, size, size])
    network = g.model()
    network.opset_import[0].version = opset
    network.ir_version = 7
    return network


@pytest.mark.exhaustive
def test_the_error_is_that_of_the_file_where_onnx_would_convert_it_wrongly(tmp_path: Path) -> None:
    model = import_model(saved(resizing(10), tmp_path / "resize.onnx"))
    x = np.random.default_rng(0).standard_normal((4, 1, 8, 10, 10)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    quantised = quantise_model(model, tmp_path / "x.npz", tmp_path / "q.onnx")
    assert quantised.quantisation is not None
    pair = [InferenceSession(m.path, providers=["CPUExecutionProvider"]) for m in (model, quantised)]
    wanted, given = (np.concatenate([net.run(None, {"x": each})[0] for each in x]) for net in pair)
    error = np.abs(given - wanted).mean() / np.sqrt(np.square(wanted).mean())
    assert error == pytest.approx(quantised.quantisation.worst.mean, rel=0.3)


@pytest.mark.exhaustive
def test_an_opset_without_quantised_networks_is_named(tmp_path: Path) -> None:
    model = import_model(saved(resizing(9), tmp_path / "upsample.onnx"))
    np.savez(tmp_path / "x.npz", x=np.ones((2, 1, 8, 10, 10), np.float32))
    with pytest.raises(InvalidModelError, match=r"opset 9.*export it again") as caught:
        quantise_model(model, tmp_path / "x.npz", tmp_path / "q.onnx")
    assert caught.value.code == "quantise-failed"


@pytest.mark.exhaustive
def test_products_of_two_activations_stay_float(tmp_path: Path) -> None:
    g = GraphBuilder(seed=2)
    x = g.input("x", [8, 16])
    square = g.node("MatMul", x, g.node("Transpose", x, perm=[1, 0]))
    y = g.node("Add", square, g.weight(8))  # ONNX Runtime makes a Gemm of both
    g.output(g.linear(y, 8, 4), [8, 4])
    model = import_model(saved(g.model(), tmp_path / "square.onnx"))
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((4, 8, 16)).astype(np.float32))
    quantised = quantise_model(model, tmp_path / "x.npz", tmp_path / "q.onnx", max_error=0.5)
    assert quantised.quantisation is not None
    assert quantised.quantisation.products == 1
    graph = onnx.load(quantised.path).graph
    made_of = {name: node for node in graph.node for name in node.output}
    sources = [
        [made_of[name].op_type for name in node.input[:2] if name in made_of]
        for node in graph.node
        if node.op_type in ("Gemm", "MatMul")
    ]
    assert sorted(source.count("DequantizeLinear") for source in sources) == [0, 2]


@pytest.mark.exhaustive
def test_products_of_doubles_are_nothing_to_quantise(tmp_path: Path) -> None:
    g = GraphBuilder(seed=2)
    x = g.node("Cast", g.input("x", [1, 16]), to=TensorProto.DOUBLE)
    y = g.node("MatMul", x, g.constant(np.random.default_rng(1).standard_normal((16, 4))))
    g.output(g.node("Cast", y, to=TensorProto.FLOAT), [1, 4])
    model = import_model(saved(g.model(), tmp_path / "double.onnx"))
    np.savez(tmp_path / "x.npz", x=np.ones((2, 1, 16), np.float32))
    with pytest.raises(InvalidModelError) as caught:
        quantise_model(model, tmp_path / "x.npz", tmp_path / "q.onnx")
    assert caught.value.code == "nothing-to-quantise"


@pytest.mark.exhaustive
def test_a_name_of_the_quantisers_own_is_named(tmp_path: Path) -> None:
    g = GraphBuilder(seed=2)
    x = g.input("x", [1, 16])
    scale = g.input("x_scale", [1, 16])
    g.output(g.node("Add", g.linear(x, 16, 16), scale), [1, 16])
    model = import_model(saved(g.model(), tmp_path / "clash.onnx"))
    ones = np.ones((2, 1, 16), np.float32)
    np.savez(tmp_path / "x.npz", x=ones, x_scale=ones)
    with pytest.raises(InvalidModelError, match="x_scale") as caught:
        quantise_model(model, tmp_path / "x.npz", tmp_path / "q.onnx")
    assert caught.value.code == "quantise-failed"
