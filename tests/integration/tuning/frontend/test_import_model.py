"""Importing networks: ordinary, broken and hostile ones."""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import bad_models
import numpy as np
import onnx
import onnx.parser
import onnx_models
import pytest
from onnx import TensorProto, helper

from tunefarm_tuning import ImportLimits, Model, TensorSpec, extract_tasks, import_model, parse_target
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.process import ChildClosed
from tunefarm_tuning.workload.runtime_part import OpenSpec

LIMITS = ImportLimits(memory_bytes=4 << 30, timeout_sec=120)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return the path of a file as in a content-addressed store: no suffix, and no other file beside it."""
    return tmp_path / "3f" / "3f9a"


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o444)
    return path


def refused(
    path: Path, shapes: Mapping[str, Sequence[int] | str] | None = None, limits: ImportLimits = LIMITS
) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        import_model(path, shapes=shapes, limits=limits)
    return caught.value


@pytest.mark.matrix(every=10, each_value=False)
@pytest.mark.parametrize("name", sorted({*onnx_models.ORDINARY}))
def test_ordinary_networks_are_accepted(name: str, stored: Path) -> None:
    built = onnx_models.ORDINARY[name]()
    model = import_model(write(stored, built.SerializeToString()), limits=LIMITS)
    assert [spec.name for spec in model.inputs] == [value.name for value in built.graph.input]
    for spec, value in zip(model.outputs, built.graph.output, strict=True):
        assert spec.name == value.name
        assert spec.shape == tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    assert sum(count for _, count in model.operators) == len(built.graph.node)
    assert model.opset == onnx_models.OPSET
    assert dict(model.shapes) == {}
    assert Model.from_json(model.to_json(), model.path) == model


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("operator", "opset"), [("SimplifiedLayerNormalization", 17), ("LayerNormalization", 14)]
)
def test_operators_that_onnx_runtime_put_into_onnx_s_domain_are_accepted(
    operator: str, opset: int, stored: Path
) -> None:
    g = onnx_models.GraphBuilder()
    g.output(g.linear(g.node(operator, g.input("x", [2, 8]), g.weight(8), axis=-1), 8, 4), [2, 4])
    model = import_model(write(stored, g.model(opset).SerializeToString()), limits=LIMITS)
    assert dict(model.operators)[operator] == 1
    assert not model.parts


def test_branches_are_accepted(stored: Path) -> None:
    model = import_model(write(stored, onnx_models.branching().SerializeToString()))
    assert model.inputs == (
        TensorSpec(name="x", shape=(1, 8), dtype="float32"),
        TensorSpec(name="flag", shape=(), dtype="bool"),
    )
    assert dict(model.operators) == {"Where": 1, "Relu": 1, "Neg": 1, "Exp": 1}


def test_another_thread_ends_an_import_or_an_extraction(stored: Path) -> None:
    path = write(stored, onnx_models.branching().SerializeToString())
    model = import_model(path)
    ended = Cancellation()
    ended.cancel()
    for work in (partial(import_model, path), partial(extract_tasks, model)):
        with pytest.raises(ChildClosed):
            work(cancellation=ended)  # before there is a child
        later = Cancellation()
        threading.Timer(0.2, later.cancel).start()
        with pytest.raises(ChildClosed):
            deque((work(cancellation=later) for _ in iter(int, 1)), maxlen=0)  # again and again


@pytest.mark.matrix(every=5, each_value=False)
@pytest.mark.parametrize("name", sorted(bad_models.REFUSED))
def test_bad_models_are_refused_each_with_its_code(name: str, stored: Path) -> None:
    code, build = bad_models.REFUSED[name]
    path = write(stored, build())
    error = refused(path)
    assert error.code == code, error.message
    assert error.message.isprintable()
    assert len(error.message) < 1500
    # Where the file lies is nobody's business.
    assert str(path.parent) not in f"{error.message} {error.fields}"


def test_nothing_is_left_behind(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch, here = tmp_path / "scratch", tmp_path / "here"
    for folder in (scratch, here):
        folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(here)
    import_model(write(stored, onnx_models.mlp().SerializeToString()))
    refused(write(tmp_path / "bomb", bad_models.memory_bomb()))
    refused(write(tmp_path / "crash", bad_models.folded_division_by_zero()))
    assert list(scratch.iterdir()) == []
    assert list(here.iterdir()) == []
    assert list(stored.parent.iterdir()) == [stored]


@pytest.mark.exhaustive
def test_what_only_the_checker_of_onnx_insists_on_may_be_missing(stored: Path) -> None:
    """A graph without a name, a key twice in the metadata: published networks have them, and ONNX Runtime runs them."""
    built = onnx_models.ORDINARY["mlp"]()
    built.graph.ClearField("name")
    for value in ("1", "2"):
        built.metadata_props.add(key="shape", value=value)
    model = import_model(write(stored, built.SerializeToString()), limits=LIMITS)
    assert model.outputs
    assert len(extract_tasks(model, parse_target("llvm"))) > 0


@pytest.mark.exhaustive
def test_weights_listed_as_inputs_are_none(stored: Path) -> None:
    built = onnx_models.mlp()
    for tensor in built.graph.initializer:
        built.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )
    built.ir_version = 3
    model = import_model(write(stored, built.SerializeToString()))
    assert [spec.name for spec in model.inputs] == ["x"]


@pytest.mark.exhaustive
def test_an_input_may_be_an_output_too(stored: Path) -> None:
    g = onnx_models.GraphBuilder()
    x = g.input("x", [4])
    g.node("Relu", x, out="y")
    g.output("y", [4])
    g.output("x", [4])
    assert len(import_model(write(stored, g.model().SerializeToString())).outputs) == 2


@pytest.mark.exhaustive
def test_parameters_are_counted(stored: Path) -> None:
    model = import_model(write(stored, onnx_models.mlp(features=(3, 5)).SerializeToString()))
    assert model.num_params == 3 * 5 + 5
    assert model.operators == (("Add", 1), ("MatMul", 1), ("Softmax", 1))


class TestShapes:
    @pytest.fixture
    def open_mlp(self, stored: Path) -> Path:
        return write(stored, onnx_models.mlp(batch="N").SerializeToString())

    def test_open_dimensions_are_bound(self, open_mlp: Path) -> None:
        model = import_model(open_mlp, shapes={"x": [np.int64(3), 32]})
        assert model.inputs == (TensorSpec(name="x", shape=(3, 32), dtype="float32"),)
        assert model.outputs[0].shape == (3, 10)
        assert dict(model.shapes) == {"x": (3, 32)}

    @pytest.mark.exhaustive
    def test_a_named_dimension_is_bound_everywhere(self, stored: Path) -> None:
        path = write(stored, onnx_models.two_by_two(batch="N").SerializeToString())
        model = import_model(path, shapes={"left": (5, 6)})
        assert [spec.shape for spec in model.inputs] == [(5, 6), (5, 6)]
        assert dict(model.shapes) == {"left": (5, 6), "right.ids:0": (5, 6)}

    @pytest.mark.matrix(every=3, each_value=False)
    @pytest.mark.parametrize("mark", ["?", "-1", " "])
    def test_marks_of_unknown_sizes_are_no_names(self, mark: str, stored: Path) -> None:
        path = write(stored, bad_models.input_of([mark, mark]))
        assert import_model(path, shapes={"x": (2, 3)}).inputs[0].shape == (2, 3)
        error = refused(path)
        assert error.code == "unknown-dimension"
        assert error.fields["dimension"] == 0

    @pytest.mark.exhaustive
    def test_an_input_without_any_shape_can_be_bound(self, stored: Path) -> None:
        path = write(stored, bad_models.input_of(None))
        assert import_model(path, shapes={"x": (2, 3)}).outputs[0].shape == (2, 3)

    def test_an_input_without_any_shape_is_named_with_the_option_to_give(self, stored: Path) -> None:
        error = refused(write(stored, bad_models.input_of(None)))
        assert error.code == "unknown-dimension"
        assert error.message.endswith("give its shape, for example: --shape x=1,...")

    @pytest.mark.exhaustive
    def test_dimension_names_are_not_computed_with(self, stored: Path) -> None:
        # TVM reads them as arithmetic.
        path = write(stored, bad_models.input_of(["a+b*0", "7//0"]))
        assert import_model(path, shapes={"x": (2, 3)}).inputs[0].shape == (2, 3)

    def test_an_unknown_dimension_is_named_with_the_option_to_give(self, open_mlp: Path) -> None:
        error = refused(open_mlp)
        assert error.code == "unknown-dimension"
        assert (error.fields["input"], error.fields["dimension"]) == ("x", "N")
        assert error.message.endswith(
            "give the shape of every open input; it runs, for example, with: --shape x=1,32"
        )
        assert error.fields["options"] == "--shape x=1,32"
        assert error.fields["proposal"] == {"shapes": {"x": [1, 32]}, "values": {}}

    @pytest.mark.matrix(every=2, each_value=False)
    @pytest.mark.parametrize(
        ("shapes", "code", "words"),
        [
            ({"y": (1, 32)}, "unknown-input", "no such input; it has: x"),
            ({"x": (1, 2, 32)}, "bad-shape", "has 3 dimensions, but the model's has 2"),
            ({"x": (1, 33)}, "bad-shape", "the model fixes it to 32"),
            ({"x": (-1, 32)}, "bad-shape", "above zero"),
            ({"x": ("a", 32)}, "bad-shape", "whole numbers"),
            ({"x": (1.5, 32)}, "bad-shape", "whole numbers"),
            ({"x": (True, 32)}, "bad-shape", "whole numbers"),
            ({"x": (0, 32)}, "zero-size", "dimension 0 of input 'x' is zero"),
            ({"x": (2**40, 32)}, "too-large", "bytes"),
        ],
    )
    def test_wrong_shapes_are_refused(
        self, shapes: dict[str, tuple[int, ...]], code: str, words: str, open_mlp: Path
    ) -> None:
        error = refused(open_mlp, shapes)
        assert (error.code, words in error.message) == (code, True), error.message

    @pytest.mark.parametrize(
        ("shapes", "fits"),
        [
            ({"y": (1, 32)}, {"x": [1, 32]}),
            ({"x": (1, 33)}, {"x": [1, 32]}),
            ({"x": (7, 32), "y": (1, 32)}, {"x": [7, 32]}),
        ],
    )
    def test_shapes_that_do_not_fit_are_answered_with_some_that_do(
        self, shapes: dict[str, tuple[int, ...]], fits: dict[str, list[int]], open_mlp: Path
    ) -> None:
        error = refused(open_mlp, shapes)
        assert error.fields["proposal"] == {"shapes": fits, "values": {}}
        assert f"; it runs, for example, with: {error.fields['options']}" in error.message

    def test_a_network_whose_file_fixes_all_needs_no_shapes(self, stored: Path) -> None:
        error = refused(write(stored, onnx_models.mlp().SerializeToString()), {"other": (1, 3, 224, 224)})
        assert error.fields["proposal"] == {"shapes": {}, "values": {}}
        assert error.message.endswith("; it runs without shapes and values")

    def test_every_set_of_shapes_is_run_before_it_is_imported(self, stored: Path) -> None:
        graph = "(float[n, 4] x) => (float[4] y) <int64 five = {5}> { a = Neg(x)  y = Gather(a, five) }"
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\nnet {graph}')
        path = write(stored, model.SerializeToString())
        with pytest.raises(
            InvalidModelError, match=r"^with the shapes x=4,4: ONNX Runtime cannot run node 'y'"
        ) as caught:
            import_model(path, shapes={"x": "8|4,4"}, limits=LIMITS)
        assert caught.value.code == "index-out-of-range"

    def test_sizes_that_leave_nothing_to_average_are_answered_with_larger_ones(self, stored: Path) -> None:
        graph = (
            "(float[1, 3, h, w] x) => (float[1, 3, 1, 1] y)"
            " { a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)  y = GlobalAveragePool(a) }"
        )
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\nnet {graph}')
        model.graph.node[1].name = "pool"
        error = refused(write(stored, model.SerializeToString()), {"x": (1, 3, 1, 6)})
        assert (error.code, error.fields["node"]) == ("bad-shape", "pool")
        assert (
            "its input has the shape [1, 3, 0, 3], and the mean of no elements is no number" in error.message
        )
        assert "; it runs, for example, with: --shape x=" in error.message

    def test_one_name_cannot_have_two_sizes(self, stored: Path) -> None:
        path = write(stored, onnx_models.two_by_two(batch="N").SerializeToString())
        error = refused(path, {"left": (5, 6), "right.ids:0": (4, 6)})
        assert error.code == "bad-shape"


class TestMessages:
    def test_an_unsupported_operator_is_named_with_its_node(self, stored: Path) -> None:
        error = refused(write(stored, bad_models.unknown_operator(name="my_")))
        assert error.fields["operator"] == "Twist"
        assert error.fields["node"] == "my_twist0_node"
        assert "operator Twist (node 'my_twist0_node', opset 17)" in error.message

    def test_all_unsupported_operators_are_listed(self, stored: Path) -> None:
        g = onnx_models.GraphBuilder()
        x = g.input("x", [1, 4])
        g.node("Twist", g.node("Turn", x), out="y")
        g.output("y", [1, 4])
        error = refused(write(stored, g.model().SerializeToString()))
        assert error.fields["operators"] == ["Turn", "Twist"]
        assert "nor is Twist" in error.message

    def test_an_operator_that_tvm_refuses_at_work_is_named_too(self, stored: Path) -> None:
        error = refused(write(stored, bad_models.zero_groups()))
        assert (error.fields["operator"], error.fields["node"]) == ("Conv", "conv0_node")

    def test_terminal_escapes_and_long_names_are_made_safe(self, stored: Path) -> None:
        error = refused(write(stored, bad_models.escaping_name()))
        assert "\x1b" not in f"{error.message}{error.fields}"
        assert "\\x1b[31mred" in error.message

    def test_external_data_names_tensor_and_location(self, stored: Path) -> None:
        error = refused(write(stored, bad_models.external_weight()))
        assert error.fields == {"tensor": "w0", "location": "/etc/passwd"}


class TestLimits:
    def test_file_size(self, stored: Path) -> None:
        error = refused(write(stored, bytes(1001)), limits=ImportLimits(file_bytes=1000))
        assert error.code == "too-large"
        assert error.fields == {"size_bytes": 1001, "limit_bytes": 1000}

    def test_nodes(self, stored: Path) -> None:
        error = refused(write(stored, bad_models.long_chain(12)), limits=ImportLimits(nodes=10))
        assert error.code == "too-large"
        assert error.fields == {"nodes": 12, "limit_nodes": 10}

    def test_an_artifact_of_many_shapes(self, stored: Path) -> None:
        network = write(stored, onnx_models.mlp(batch="n").SerializeToString())
        limits = ImportLimits(artifact_bytes=1 << 16)
        error = refused(network, {"x": "1..64,32@1,8,64"}, limits)
        assert error.code == "too-large"
        assert "the artifact for 3 sets of shapes would take about" in error.message
        assert error.fields["limit_bytes"] == 1 << 16

    def test_wall_clock(self, stored: Path) -> None:
        error = refused(write(stored, bad_models.long_chain(3000)), limits=ImportLimits(timeout_sec=0.5))
        assert error.code == "import-timeout"

    def test_cpu_time(self, stored: Path) -> None:
        error = refused(write(stored, bad_models.long_chain(3000)), limits=ImportLimits(cpu_sec=1))
        assert error.code == "import-timeout"

    def test_no_such_file(self, stored: Path) -> None:
        with pytest.raises(InvalidInputError) as caught:
            import_model(stored)
        assert caught.value.code == "no-such-file"


@pytest.mark.exhaustive
def test_deeply_nested_branches_are_accepted(stored: Path) -> None:
    model = import_model(write(stored, bad_models.deep_branches(25)))
    assert dict(model.operators)["Where"] == 25


def test_a_weight_whose_size_is_a_lie(stored: Path) -> None:
    built = onnx_models.mlp()
    built.graph.initializer[0].dims[0] = 2**40
    assert refused(write(stored, built.SerializeToString())).code == "invalid-onnx"


@pytest.mark.exhaustive
def test_half_precision_is_accepted(stored: Path) -> None:
    g = onnx_models.GraphBuilder()
    x = g.input("x", [1, 2, 9, 9], TensorProto.FLOAT16)
    g.node("Conv", x, g.constant(np.ones((3, 2, 3, 3), np.float16)), out="y")
    g.output("y", [1, 3, 7, 7], TensorProto.FLOAT16)
    model = import_model(write(stored, g.model().SerializeToString()))
    assert model.outputs == (OpenSpec(name="y", shape=(1, 3, 7, 7), dtype="float16"),)


def test_the_model_file_is_only_read(stored: Path) -> None:
    data = onnx_models.mlp().SerializeToString()
    before = write(stored, data).stat().st_mtime_ns
    import_model(stored)
    assert stored.read_bytes() == data
    assert stored.stat().st_mtime_ns == before
    assert onnx.load_model_from_string(stored.read_bytes()).graph.input[0].name == "x"


@pytest.mark.exhaustive
def test_the_mask_of_a_dropout_is_of_booleans(stored: Path) -> None:
    graph = onnx_models.GraphBuilder()
    y, mask = graph.node("Dropout", graph.node("Relu", graph.input("x", [1, 8])), outputs=2)
    graph.output(y, [1, 8])
    graph.output(mask, [1, 8], TensorProto.BOOL)
    model = import_model(write(stored, graph.model().SerializeToString()))
    assert [spec.dtype for spec in model.outputs] == ["float32", "bool"]
