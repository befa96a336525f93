"""What is proposed for the open dimensions and settings of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from tunefarm_tuning.frontend.onnx import check_child
from tunefarm_tuning.frontend.onnx.proposals.propose import MAX_PROPOSALS, propose, takes_images
from tunefarm_tuning.frontend.onnx.proposals.relations import size_of
from tunefarm_tuning.workload.binding import Binding


def proposals(inputs: str, *, body: str = "", **given: Any) -> list[Binding]:
    text = f'<ir_version: 8, opset_import: ["" : 17]>\nnet ({inputs}) => (float[a] y) {{ {body} y = Identity(x) }}'
    return list(propose(onnx.parser.parse_model(text), Binding.of(given)))


def first(inputs: str, **given: Any) -> list[tuple[int, ...]]:
    return list(proposals(inputs, **given)[0].shapes.values())


@pytest.mark.parametrize(
    ("inputs", "shapes"),
    [
        ("float[batch, 3, height, width] x", [(1, 3, 224, 224)]),
        ("float[N, C, H, W] x", [(1, 3, 224, 224)]),
        ("float[N, 3, 48, W] x", [(1, 3, 48, 320)]),
        ("int64[batch, seq_len] x, int64[batch, seq_len] mask", [(1, 128), (1, 128)]),
        ("float[batch, samples] x", [(1, 16000)]),
        ("float[seq_len, 576] x", [(128, 576)]),
        ("float[unk__1, unk__2] x", [(1, 16000)]),
        ("float[unk__1, frames, 80] x", [(1, 128, 80)]),
        ("float[B, C, T] x", [(1, 1, 16000)]),
        ("float[batch, 1, unk__1] x", [(1, 1, 16000)]),
        ("float[batch, channels] x", [(1, 3)]),
        ("float[audio_axis_1, 64, audio_axis_2] audio, float[a] x", [(1, 64, 128), (16000,)]),
        ("float[2, b, 128] state, float[b, n_samples] x", [(2, 1, 128), (1, 16000)]),
        ("float[T, s1, 20] x, float[2, s1, 32] h_in", [(128, 1, 20), (2, 1, 32)]),
        ("int64[n_audio, n_tokens] x, float[n_audio, n_past, 48] self_k", [(1, 128), (1, 128, 48)]),
        ("float[n, 4, h, w] x, int64[steps] timestep", [(1, 4, 64, 64), (1,)]),
        ("float[num_nodes, 16] x, int64[2, num_edges] edge_index", [(128, 16), (2, 128)]),
        ("float[s2, 16] x, int64[2, s43] edge_index", [(128, 16), (2, 128)]),
    ],
)
def test_names_and_positions_tell(inputs: str, shapes: list[tuple[int, ...]]) -> None:
    assert first(inputs) == shapes


WORDS = "int64[b, s] x, float[b, 2, p, 8] past_key_0, "


@pytest.mark.parametrize(
    ("inputs", "masks"),
    [
        (WORDS + "int64[b, t] attention_mask", (1, 256)),
        (WORDS + "float[b, 1, s, t] attention_mask", (1, 1, 128, 256)),
        (WORDS + "int64[b, total_length] positions", (1, 256)),
        (WORDS + "int64[b, s] attention_mask", (1, 128)),
    ],
)
def test_a_mask_goes_over_the_cache_and_the_new_words(inputs: str, masks: tuple[int, ...]) -> None:
    assert first(inputs) == [(1, 128), (1, 2, 128, 8), masks]


def test_a_name_that_adds_up_others_has_their_sum() -> None:
    """As Optimum names the mask of a decoder."""
    inputs = ("x", ["b", 1]), ("past_key", ["b", 2, "past_length", 8]), ("mask", ["b", "past_length + 1"])
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "net",
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in inputs],
            [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        )
    )
    shapes = next(propose(model, Binding())).shapes
    assert shapes == {"x": (1, 1), "past_key": (1, 2, 128, 8), "mask": (1, 129)}


@pytest.mark.parametrize(
    ("name", "size"),
    [("n*2-1", 31999), ("n*1000000000", None), ("n-16001", None), ("2147483647*2147483647*n", None)],
)
def test_a_size_that_no_tensor_has_is_not_computed_of_a_name(name: str, size: int | None) -> None:
    """Otherwise the error would show it as an example of what to give."""
    assert size_of(name, {"n": 16000}) == size


def test_dimensions_without_a_name_are_dimensions_of_their_own() -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3, "?", "?"])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )
    )
    shapes = [binding.shapes["x"] for binding in propose(model, Binding())]
    assert shapes[0] == (1, 3, 224, 224)
    assert (1, 3, 48, 320) in shapes
    assert len(shapes) <= MAX_PROPOSALS


def test_the_first_weight_tells_the_channels() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, c, h, w] x) => (float[a, b, p, q] y) <float[8, 5, 1, 1] weight = {}> { s = Mul(x, x)  y = Conv(s, weight) }""")
    weight = helper.make_tensor("weight", TensorProto.FLOAT, [8, 5, 1, 1], [0.0] * 40)
    del model.graph.initializer[:]
    model.graph.initializer.append(weight)
    assert next(propose(model, Binding())).shapes == {"x": (1, 5, 224, 224)}
    model.graph.node[0].op_type = "Cast"
    del model.graph.node[0].input[1:]
    model.graph.node[0].attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
    assert next(propose(model, Binding())).shapes == {"x": (1, 5, 224, 224)}
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert next(propose(model, Binding())).shapes == {"x": (1, 5, 224, 224)}


@pytest.mark.parametrize("nodes", ["x = Relu(x)", "a = Relu(x)  x = Relu(a)"])
def test_values_that_follow_from_each_other_end_the_search(nodes: str) -> None:
    """Before, it went round for ever."""
    assert first("float[n, 3, h, w] x", body=nodes) == [(1, 3, 224, 224)]


@pytest.mark.parametrize(
    ("key", "text", "size"),
    [
        ("imgsz", "[480, 640]", (1, 3, 480, 640)),
        ("imgsz", "320", (1, 3, 320, 320)),
        ("imgsz", "[" * 150, (1, 3, 224, 224)),
        ("imgsz", "[0, -1]", (1, 3, 224, 224)),
        ("names", "[480, 640]", (1, 3, 224, 224)),
    ],
)
def test_metadata_tells_the_size(key: str, text: str, size: tuple[int, ...]) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\nnet (float[n, 3, h, w] x) => (float[a] y) { y = Identity(x) }'
    )
    helper.set_model_props(model, {key: text})
    assert next(propose(model, Binding())).shapes == {"x": size}


def test_given_sizes_that_do_not_run_are_rounded_up() -> None:
    shapes = [binding.shapes["x"] for binding in proposals("float[n, 3, h, w] x", x=[2, 3, 250, 300])]
    assert shapes[:4] == [(2, 3, 256, 304), (2, 3, 256, 304), (2, 3, 256, 320), (2, 3, 256, 320)]


SWITCH = """<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 64] x, int64 sr, bool fast) => (float[n, 64] y) <int64[1] none = {-1}> {
  rate = Constant <value = int64[1] {16000}> ()
  flat = Reshape(sr, none)
  same = Equal(flat, rate)
  both = And(same, fast)
  y = If(both) <then_branch = t () => (float[n, 64] a) { a = Neg(x) }, else_branch = e () => (float[n, 64] a) { a = Abs(x) }>
}"""


def test_settings_that_decide_a_branch_are_proposed_with_what_they_are_compared_with() -> None:
    assert next(propose(onnx.parser.parse_model(SWITCH), Binding())).values == {"sr": 16000, "fast": True}
    given = Binding.of(None, {"sr": 8000})
    assert next(propose(onnx.parser.parse_model(SWITCH), given)).values == {"sr": 8000, "fast": True}


@pytest.mark.parametrize(
    ("body", "length"),
    [
        ("s = Reshape(x, shape)", 11),  # a size that the export fixed
        ("c = Concat <axis = 1> (more, x)  s = Reshape(c, longer)", 11),
    ],
)
def test_a_size_that_the_export_fixed_is_learnt_from_the_error(
    body: str, length: int, tmp_path: Path
) -> None:
    graph = f"""<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, t, 6] x) => (float[a, b, c] y)
    <int64[3] shape = {{11, 2, 3}}, int64[3] longer = {{16, 2, 3}}, float[1, 5, 6] more = {{}}>
    {{ {body} y = Identity(s) }}"""
    model = onnx.parser.parse_model(graph)
    position = next(i for i, tensor in enumerate(model.graph.initializer) if tensor.name == "more")
    zeros = helper.make_tensor("more", TensorProto.FLOAT, [1, 5, 6], [0.0] * 30)
    model.graph.initializer[position].CopyFrom(zeros)
    path = tmp_path / "net"
    path.write_bytes(model.SerializeToString())
    proposal = check_child.propose_binding({"path": str(path), "binding": {}, "max_tensor_bytes": 1 << 24})
    assert proposal == {"binding": {"shapes": {"x": [1, length, 6]}, "values": {}}, "runs": True}


def test_what_is_proposed_runs(tmp_path: Path) -> None:
    graph = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, 1, h, w] x) => (float[a, b, c, d] y) <int64[5] shape = {1, 1, -1, 16, 48}> { s = Reshape(x, shape)
      y = Identity(s) }"""
    path = tmp_path / "net"
    path.write_bytes(onnx.parser.parse_model(graph).SerializeToString())
    params = {"path": str(path), "binding": {}, "max_tensor_bytes": 1 << 24}
    proposal = check_child.propose_binding(params)
    assert proposal is not None
    assert proposal["runs"]
    _, _, height, width = proposal["binding"]["shapes"]["x"]
    assert height * width % (16 * 48) == 0


@pytest.mark.parametrize(
    ("inputs", "images"),
    [
        ("float[n, 3, h, w] x", True),
        ("float[n, 3, 48, w] x", False),  # a line of text: its length is as good as another
        ("int64[batch, seq_len] x", False),
        ("float[n, 4, h, w] x", False),
    ],
)
def test_images_are_known(inputs: str, images: bool) -> None:
    """Their usual sizes are tried before those that fit the node that failed (`trial`)."""
    text = f'<ir_version: 8, opset_import: ["" : 17]>\nnet ({inputs}) => (float[a] y) {{ y = Identity(x) }}'
    assert takes_images(onnx.parser.parse_model(text), Binding()) is images
