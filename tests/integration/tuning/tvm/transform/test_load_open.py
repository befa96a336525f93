"""Networks that halve an image and double it again take all sizes that fit, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from diffusion_net import diffusion_net, video_net
from onnx_models import GraphBuilder

import tunefarm_tuning
from tunefarm_tuning import Artifact, import_model
from tunefarm_tuning.artifact.arrays import ArtifactInputError
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx import bound_network, model_file
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_tuning.tvm.transform import load_open as load_open_module
from tunefarm_tuning.tvm.transform.load_open import load_open
from tunefarm_tuning.workload.binding import Binding


def compiled(path: Path, shapes: dict[str, tuple[int, ...]]) -> Artifact:
    model = import_model(path, shapes=shapes)
    return tunefarm_tuning.compile(model, output=path.parent / "net", baseline=False)


def multiples_of(artifact: Artifact) -> dict[str, int]:
    """Return of what sizes must be multiples, by dimension."""
    section = artifact.report["other_shapes"]
    assert section["reason"] is None
    return {size["name"]: size["multiple"] for size in section["dimensions"]}


def check(artifact: Artifact, path: Path, **shapes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (output,) = load(artifact.path)(**feeds).values()
    np.testing.assert_allclose(output, session.run(None, feeds)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.exhaustive
def test_a_text_beside_an_image_has_any_length(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(diffusion_net(), path)
    artifact = compiled(path, {"sample": (1, 4, 8, 8), "text": (1, 7, 6)})
    assert multiples_of(artifact) == {"batch": 1, "height": 2, "width": 2, "sequence": 1}
    check(artifact, path, sample=(2, 4, 12, 6), text=(2, 5, 6))


@pytest.mark.exhaustive
def test_a_dimension_that_is_never_halved_may_be_beside_those_that_are(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(video_net(), path)
    artifact = compiled(path, {"video": (1, 2, 4, 8, 8)})
    assert multiples_of(artifact)["height"] == multiples_of(artifact)["width"] == 2
    check(artifact, path, video=(1, 4, 4, 6, 10))


@pytest.mark.exhaustive
def test_a_step_that_all_samples_share_keeps_its_size(tmp_path: Path) -> None:
    g = GraphBuilder()
    samples = g.node("MatMul", g.input("x", ["batch", 6]), g.weight(6, 8))
    steps = g.node("Mul", g.node("Unsqueeze", g.input("step", ["steps"]), g.ints(1)), g.weight(1, 8))
    g.output(g.node("Add", samples, steps), ["batch", 8])
    path = tmp_path / "net.onnx"
    onnx.save(g.model(), path)
    artifact = compiled(path, {"x": (2, 6), "step": (1,)})
    assert multiples_of(artifact) == {"batch": 1}
    check(artifact, path, x=(5, 6), step=(1,))


def test_no_kernel_reshapes_to_open_sizes(tmp_path: Path) -> None:
    """Such kernels divide by sizes for each element; nested divisions took TVM minutes to compile."""
    g = GraphBuilder()
    x = g.input("x", ["batch", 1, "width"])
    rows = g.node("Conv", x, g.weight(6, 1, 5), strides=[8])
    heads = g.node("Transpose", g.node("Reshape", rows, g.ints(0, 2, 3, -1)), perm=[0, 1, 3, 2])
    same = g.node("Reshape", heads, g.ints(0, 2, -1, 3))
    by_row = g.node("Reshape", g.node("Softmax", same), g.ints(-1, 3))
    g.output(by_row, [None, 3])
    path = tmp_path / "net.onnx"
    onnx.save(g.model(), path)
    fixed = import_model(path, shapes={"x": (1, 1, 29)}).binding
    module = load_open(path, [fixed], detect_host_target()).module
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    assert not [name for name in names if "reshape" in name]
    assert module.script().count("R.reshape(") == 2  # that to the same shape is gone
    artifact = compiled(path, {"x": (1, 1, 29)})
    check(artifact, path, x=(3, 1, 50))
    check(artifact, path, x=(1, 1, 8))


@pytest.mark.exhaustive
def test_relative_positions_count_down_from_a_size_to_its_negative(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", ["words"])
    length = g.node("Squeeze", g.node("Shape", x), g.ints(0))
    minus = g.constant(np.array(-1, np.int64))
    positions = g.node("Range", g.node("Add", length, minus), g.node("Neg", length), minus)
    sines = g.node("Unsqueeze", g.node("Sin", g.node("Cast", positions, to=1)), g.ints(1))
    g.output(g.node("MatMul", g.node("Mul", sines, x), g.node("Unsqueeze", x, g.ints(1))), [None, 1])
    path = tmp_path / "net.onnx"
    onnx.save(g.model(), path)
    artifact = compiled(path, {"x": (4,)})
    assert multiples_of(artifact) == {"words": 1}
    check(artifact, path, x=(7,))


def test_a_condition_on_a_size_that_only_the_run_knows_is_refused(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", ["words"])
    shape = g.node("Shape", x)
    length = g.node("Abs", g.node("Squeeze", shape, g.ints(0)))
    ends = (g.constant(np.array(end, np.int64)) for end in (0, 1))
    positions = g.node("Cast", g.node("Range", next(ends), length, next(ends)), to=1)
    table = g.node("Reshape", positions, g.node("Concat", g.ints(-1), shape, axis=0))
    g.output(g.node("Add", table, x), [None, None])
    path = tmp_path / "net.onnx"
    onnx.save(g.model(), path)
    with pytest.raises(InvalidModelError, match="a size that only the run knows") as caught:
        load_open(path, [Binding(shapes={"x": (4,)}, values={})], detect_host_target())
    assert caught.value.code == "unsupported-operator"


def test_sizes_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(diffusion_net(), path)
    binding = Binding(shapes={"sample": (1, 4, 9, 8), "text": (1, 7, 6)}, values={})
    with pytest.raises(InvalidModelError, match="multiples of 2 for height alone, and not 9") as caught:
        load_open(path, [binding], detect_host_target())
    assert caught.value.code == "unsupported-operator"


def test_the_sizes_of_every_set_of_shapes_have_to_fit(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(diffusion_net(), path)
    bindings = [
        Binding(shapes={"sample": (1, 4, height, 8), "text": (1, 7, 6)}, values={}) for height in (8, 9)
    ]
    with pytest.raises(InvalidModelError, match="multiples of 2 for height alone, and not 9"):
        load_open(path, bindings, detect_host_target())


def test_a_file_is_read_once_for_all_sizes_that_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(diffusion_net(), path)
    binding = Binding(shapes={"sample": (1, 4, 8, 8), "text": (1, 7, 6)}, values={})
    read, reads = model_file.read_model, []

    def counted(*arguments: Any) -> Any:
        reads.append(arguments)
        return read(*arguments)

    for module in (load_open_module, bound_network):
        monkeypatch.setattr(module, "read_model", counted)
    load_open(path, [binding], detect_host_target())
    assert len(reads) == 1


def test_positions_may_count_from_the_end_of_another_size(tmp_path: Path) -> None:
    """As a decoder reads its mask: the kernel of indices takes a size that is in none of its shapes, which TVM cannot fuse."""
    g = GraphBuilder(seed=1)
    mask = g.input("mask", [1, "past + 1"])
    cache = g.input("cache", [2, "past"])
    offset = g.input("offset", [1], onnx.TensorProto.INT64)
    start, step = (g.constant(np.array(number, np.int64)) for number in (0, 1))
    length = g.node("Gather", g.node("Shape", cache), step, axis=0)
    positions = g.node("Add", g.node("Range", start, length, step), offset)
    g.output(g.node("Add", g.node("Gather", g.node("Flatten", mask, axis=1), positions, axis=1), cache))
    path = tmp_path / "net.onnx"
    onnx.save(g.model(), path)
    artifact = compiled(path, {"mask": (1, 8), "cache": (2, 7), "offset": (1,)})
    assert artifact.report["other_shapes"]["reason"] is None
    network = load(artifact.path)
    for past in (1, 4, 30):
        feeds = {
            "mask": np.arange(past + 1, dtype=np.float32)[None],
            "cache": np.ones((2, past), np.float32),
            "offset": np.array([-past]),
        }
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (given,) = network(**feeds).values()
        np.testing.assert_array_equal(given, session.run(None, feeds)[0])
    with pytest.raises(ArtifactInputError, match="has to be equal to past \\+ 1 for node 'mask' \\(input\\)"):
        network(mask=np.ones((1, 5), np.float32), cache=np.ones((2, 7), np.float32), offset=np.array([0]))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_an_image_is_padded_to_a_multiple(mode: str, tmp_path: Path) -> None:
    """As PyTorch's older exporter writes it: pairs of widths, turned around."""
    g = GraphBuilder()
    x = g.input("x", ["batch", 3, "height", "width"])
    beyond = g.node("Mod", g.node("Slice", g.node("Shape", x), g.ints(2), g.ints(4)), g.ints(4))
    missing = g.node("Mod", g.node("Sub", g.ints(4), beyond), g.ints(4))
    high, wide = g.node("Split", missing, g.ints(1, 1), axis=0, outputs=2)
    pairs = g.node("Concat", g.ints(0), wide, g.ints(0), high, g.ints(0, 0, 0, 0), axis=0)
    rows = g.node("Reshape", pairs, g.ints(-1, 2))
    turned = g.node("Slice", rows, g.ints(-1), g.ints(-(1 << 63) + 1), g.ints(0), g.ints(-1))
    widths = g.node("Reshape", g.node("Transpose", turned, perm=[1, 0]), g.ints(-1))
    padded = g.node("Pad", x, widths, mode=mode)
    g.output(g.conv(padded, 3, 4, kernel=4, stride=4), ["batch", 4, "rows", "columns"])
    path = tmp_path / "net.onnx"
    onnx.save(g.model(), path)
    artifact = compiled(path, {"x": (1, 3, 13, 22)})
    assert multiples_of(artifact) == {"batch": 1, "height": 1, "width": 1}
    for shape in ((2, 3, 15, 8), (1, 3, 4, 9), (3, 3, 10, 31)):
        check(artifact, path, x=shape)


def test_an_image_whose_corners_are_aligned_has_more_than_a_pixel(tmp_path: Path) -> None:
    """TVM's kernel divides by the size less one; the code for all sizes was found wrong in the smallest shape, and left out."""
    g = GraphBuilder()
    x = g.input("x", ["batch", 3, "height", "width"])
    y = g.conv(x, 3, 4, stride=2)
    small = g.conv(y, 4, 4, stride=2)
    size = g.node(
        "Concat",
        g.node("Slice", g.node("Shape", x), g.ints(0), g.ints(1)),
        g.ints(4),
        g.node("Slice", g.node("Shape", y), g.ints(2), g.ints(4)),
        axis=0,
    )
    empty = g.constant(np.zeros(0, np.float32))
    aligned = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    g.output(g.node("Resize", small, empty, empty, size, **aligned), ["batch", 4, "rows", "columns"])
    path = tmp_path / "net.onnx"
    onnx.save(g.model(), path)
    artifact = compiled(path, {"x": (2, 3, 16, 24)})
    multiples_of(artifact)
    check(artifact, path, x=(2, 3, 9, 33))
    with pytest.raises(ArtifactInputError):
        load(artifact.path)(np.zeros((2, 3, 2, 24), np.float32))
