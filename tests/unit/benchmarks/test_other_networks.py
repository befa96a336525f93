"""The other networks are what their names say, reproducible, and not degenerate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import onnxruntime
import pytest
from benchmarks.models.networks import OTHERS
from benchmarks.models.networks.others import BUILDERS
from benchmarks.models.networks.others.convnext import build_convnext
from benchmarks.models.networks.others.crnn import build_crnn
from benchmarks.models.networks.others.deeplab_v3 import build_deeplab_v3
from benchmarks.models.networks.others.densenet121 import build_densenet121
from benchmarks.models.networks.others.espcn import build_espcn
from benchmarks.models.networks.others.mobilenet_v3 import build_mobilenet_v3_small
from benchmarks.models.networks.others.resnext import build_resnext
from benchmarks.models.networks.others.shufflenet_v2 import build_shufflenet_v2
from benchmarks.models.networks.others.squeezenet import build_squeezenet
from benchmarks.models.networks.others.transformers import build_gpt, build_vit
from benchmarks.models.networks.others.vgg11 import build_vgg11, dense_sizes, stages_of
from onnx import TensorProto

Build = Callable[..., onnx.ModelProto]

# Small images: the weights, which are most of the time, are whole but for VGG's and half of the transformers' layers.
SMALL: dict[str, Build] = {
    "squeezenet": partial(build_squeezenet, size=64),
    "vgg11": partial(build_vgg11, size=64, width=8, hidden=32),
    "densenet121": partial(build_densenet121, size=64),
    "resnext": partial(build_resnext, size=64),
    "shufflenet_v2": partial(build_shufflenet_v2, size=64),
    "mobilenet_v3_small": partial(build_mobilenet_v3_small, size=64),
    "vit": partial(build_vit, layers=3),
    "convnext": partial(build_convnext, size=64),
    "deeplab_v3": partial(build_deeplab_v3, size=64),
    "crnn": partial(build_crnn, width=40),
    "gpt": partial(build_gpt, layers=2),
    "espcn": partial(build_espcn, size=32),
}
VIT_LAYER = 12 * 192**2 + 13 * 192
GPT_LAYER = 12 * 384**2 + 13 * 384
# SqueezeNet, DenseNet, ShuffleNet and MobileNet have what torchvision's have; the others what their PyTorch twins had.
NUM_PARAMETERS = {
    "squeezenet": 1_235_496,
    "densenet121": 7_978_856,
    "resnext": 16_515_880,
    "shufflenet_v2": 2_278_604,
    "mobilenet_v3_small": 2_542_856,
    "vit": 3_048_232 - 3 * VIT_LAYER,
    "convnext": 7_967_400,
    "deeplab_v3": 1_618_773,
    "crnn": 8_723_749,
    "gpt": 13_279_488 - 2 * GPT_LAYER,
    "espcn": 22_729,
}
OPERATORS = {
    "squeezenet": {"Conv": 26, "Relu": 26, "MaxPool": 3, "Concat": 8, "BatchNormalization": 0, "Gemm": 0},
    "vgg11": {"Conv": 8, "Relu": 10, "MaxPool": 5, "Gemm": 3},
    "densenet121": {"Conv": 120, "BatchNormalization": 121, "Relu": 121, "Concat": 58, "AveragePool": 3},
    "resnext": {"Conv": 32, "Relu": 28, "Add": 9},
    "shufflenet_v2": {"Conv": 56, "Relu": 37, "Concat": 16, "Split": 13, "Reshape": 32, "Transpose": 16},
    "mobilenet_v3_small": {"Conv": 52, "HardSwish": 19, "Relu": 14, "HardSigmoid": 9, "Add": 6, "Gemm": 2},
    "vit": {"MatMul": 18, "Softmax": 3, "Erf": 3, "LayerNormalization": 7, "Split": 3, "Gather": 1},
    "convnext": {"Conv": 14, "LayerNormalization": 15, "MatMul": 20, "Erf": 10, "Transpose": 28},
    "deeplab_v3": {"Conv": 44, "Relu": 7, "Clip": 24, "Add": 6, "Resize": 2},
    "crnn": {"Conv": 7, "Relu": 7, "MaxPool": 4, "LSTM": 2, "MatMul": 1},
    "gpt": {"Gather": 1, "MatMul": 13, "Softmax": 2, "Erf": 2, "LayerNormalization": 5, "Split": 2},
    "espcn": {"Conv": 3, "Tanh": 2, "DepthToSpace": 1},
}
OUTPUTS = {
    "deeplab_v3": (1, 21, 64, 64),
    "crnn": (11, 1, 37),
    "gpt": (1, 96, 8000),
    "espcn": (1, 1, 96, 96),
}
NOT_PARAMETERS = {"scale", "sqrt2", "one", "half", "zero", "six", "mask"}


def num_parameters(model: onnx.ModelProto) -> int:
    """Statistics of batch norm are none."""
    return sum(
        int(np.prod(w.dims))
        for w in model.graph.initializer
        if w.data_type == TensorProto.FLOAT
        and not w.name.endswith((".mean", ".var"))
        and w.name not in NOT_PARAMETERS
    )


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", OTHERS)
def test_a_network_is_what_its_name_says(name: str) -> None:
    model = SMALL[name]()
    onnx.checker.check_model(model, full_check=True)
    counted = Counter(node.op_type for node in model.graph.node)
    assert {kind: counted[kind] for kind in OPERATORS[name]} == OPERATORS[name]
    if name in NUM_PARAMETERS:
        assert num_parameters(model) == NUM_PARAMETERS[name]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    inputs = [np.random.default_rng(seed).normal(size=wanted.shape).astype(np.float32) for seed in (1, 2)]
    if name == "gpt":
        inputs = [np.random.default_rng(seed).integers(0, 8000, wanted.shape) for seed in (1, 2)]
    first, second = (np.asarray(session.run(None, {wanted.name: x})[0]) for x in inputs)
    assert first.shape == OUTPUTS.get(name, (1, 1000))
    assert np.isfinite(first).all()
    assert 0.1 < first.std() < 100.0
    assert np.abs(second - first).max() > 0.05 * first.std()


def test_vgg_has_the_published_number_of_parameters() -> None:
    """Counted, not built: its weights are half a gigabyte."""

    def shapes(width: int, hidden: int, size: int) -> list[tuple[int, ...]]:
        convolutions = [pair for stage in stages_of(width) for pair in stage]
        dense = dense_sizes(width, hidden, size, 1000)
        return [(outer, inner, 3, 3) for inner, outer in convolutions] + [sizes[::-1] for sizes in dense]

    small = SMALL["vgg11"]()
    weights = [w for w in small.graph.initializer if w.name.endswith(".weight")]
    assert [tuple(w.dims) for w in weights] == shapes(8, 32, 64)
    assert num_parameters(small) == sum(int(np.prod(of)) + of[0] for of in shapes(8, 32, 64))
    assert sum(int(np.prod(of)) + of[0] for of in shapes(64, 4096, 224)) == 132_863_336


@pytest.mark.parametrize("name", ["squeezenet", "vgg11", "shufflenet_v2", "deeplab_v3", "espcn"])
def test_seed_decides_the_weights(name: str) -> None:
    first = SMALL[name](seed=3).SerializeToString()
    assert SMALL[name](seed=3).SerializeToString() == first
    assert SMALL[name](seed=4).SerializeToString() != first


def test_every_other_network_has_a_builder_and_a_test() -> None:
    assert list(BUILDERS) == list(OTHERS) == list(SMALL) == list(OPERATORS)
    assert set(OTHERS) - set(NUM_PARAMETERS) == {"vgg11"}


def test_a_decoder_looks_at_no_later_word() -> None:
    model = build_gpt(layers=1, hidden=32, heads=2, words=50, sequence=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    tokens = np.arange(8)[None]
    changed = tokens.copy()
    changed[0, 5] = 40
    first, second = (np.asarray(session.run(None, {"tokens": x})[0])[0] for x in (tokens, changed))
    np.testing.assert_allclose(second[:5], first[:5], rtol=1e-5, atol=1e-5)
    assert (np.abs(second[5:] - first[5:]).max(axis=1) > 1e-2).all()
