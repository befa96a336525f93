"""The benchmark's networks are what their names say, reproducible, and not degenerate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from benchmarks.models.networks import MEASURED, NETWORKS, OTHERS, network_file, written_out
from benchmarks.models.networks.__main__ import main
from benchmarks.models.networks.efficientnet_b0 import build_efficientnet_b0
from benchmarks.models.networks.encoder import build_encoder
from benchmarks.models.networks.resnet50 import build_resnet50
from benchmarks.models.networks.unet import build_unet

BERT_LAYER = 7_087_872
RESNET50 = {"Conv": 53, "BatchNormalization": 53, "Relu": 49, "Add": 16, "MaxPool": 1}
EFFICIENTNET_B0 = {"Conv": 81, "BatchNormalization": 49, "Sigmoid": 65, "Mul": 65, "GlobalAveragePool": 17}
UNET = {"Conv": 15, "BatchNormalization": 14, "Relu": 14, "MaxPool": 3, "ConvTranspose": 3, "Concat": 3}
RESIZED = UNET | {"Conv": 18, "ConvTranspose": 0, "Resize": 3}
ENCODER = {
    "MatMul": 8,
    "Div": 2,
    "Softmax": 1,
    "Erf": 1,
    "LayerNormalization": 2,
    "Transpose": 4,
    "Reshape": 4,
}

small_bert = partial(build_encoder, layers=1, hidden=768, heads=12, feed_forward=3072, sequence=16)
NOT_PARAMETERS = {"split", "joined", "scale", "sqrt2", "one", "half", "double"}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("build", "operators", "num_parameters"),
    [
        pytest.param(partial(build_resnet50, size=64), RESNET50, 25_557_032, id="resnet50"),
        pytest.param(
            partial(build_efficientnet_b0, size=64), EFFICIENTNET_B0, 5_288_548, id="efficientnet_b0"
        ),
        pytest.param(small_bert, ENCODER, BERT_LAYER, id="encoder"),
        pytest.param(partial(build_unet, size=32), UNET, 1_927_042, id="unet"),
        pytest.param(partial(build_unet, size=32, resize=True), RESIZED, 1_798_018, id="unet_resize"),
    ],
)
def test_a_network_is_what_its_name_says(
    build: Callable[[], onnx.ModelProto], operators: dict[str, int], num_parameters: int
) -> None:
    model = build()
    onnx.checker.check_model(model, full_check=True)
    counted = Counter(node.op_type for node in model.graph.node)
    assert {kind: counted[kind] for kind in operators} == operators
    assert num_parameters == sum(
        int(np.prod(w.dims))
        for w in model.graph.initializer
        if not w.name.endswith((".mean", ".var")) and w.name not in NOT_PARAMETERS
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    inputs = [np.random.default_rng(seed).normal(size=shape).astype(np.float32) for seed in (1, 2)]
    first, second = (np.asarray(session.run(None, {"x": x})[0]) for x in inputs)
    assert np.isfinite(first).all()
    assert 0.2 < first.std() < 100.0
    assert np.abs(second - first).max() > 0.05


def test_seed_decides_the_weights() -> None:
    build = partial(build_encoder, layers=1, hidden=16, heads=2, feed_forward=32, sequence=4)
    first = build(seed=3).SerializeToString()
    assert build(seed=3).SerializeToString() == first
    assert build(seed=4).SerializeToString() != first


def test_files_are_written_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--write", str(tmp_path / "a"), "unet", "espcn"])
    assert "unet.onnx" in capsys.readouterr().out
    assert network_file("espcn", tmp_path / "a") == tmp_path / "a" / "espcn.onnx"
    path = network_file("unet", tmp_path / "b")
    assert path.read_bytes() == (tmp_path / "a" / "unet.onnx").read_bytes()
    written_at = path.stat().st_mtime_ns
    assert network_file("unet", tmp_path / "b").stat().st_mtime_ns == written_at
    assert [file.name for file in path.parent.iterdir()] == ["unet.onnx"]
    assert network_file("mine.onnx", tmp_path) == Path("mine.onnx")


def test_an_unknown_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--write", str(tmp_path), "lenet"])
    assert "there is no network 'lenet'" in capsys.readouterr().err


def test_what_is_measured_is_there() -> None:
    assert set(MEASURED) < set(NETWORKS)
    assert len(MEASURED) == 8


def test_words_stand_for_several_networks() -> None:
    assert len(OTHERS) == 12
    assert set(NETWORKS) == {*MEASURED, *OTHERS, "unet_resize"}
    assert written_out(["measured"]) == list(MEASURED)
    assert written_out(["vit", "others", "mine.onnx"]) == [
        "vit",
        *(name for name in OTHERS if name != "vit"),
        "mine.onnx",
    ]
