"""Inputs of a network that make its kernels read or write where they should not: indices that no tensor has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import INT64, GraphBuilder
from onnx_reference import UNOPTIMISED, library_outputs

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

INT32 = TensorProto.INT32
FAR = (8, 9, -9, 1 << 27, -(1 << 27), 1 << 40, -(1 << 40), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
RUN = """
import sys
from pathlib import Path
import numpy as np
from onnx_reference import library_outputs
from test_indices import FAR, inputs_at
for library in sorted(Path(sys.argv[1]).glob("*.so")):
    shapes = [(tuple(shape), dtype) for shape, dtype in eval(library.with_suffix(".inputs").read_text())]
    for index in FAR:
        print(library.stem, index, flush=True)
        library_outputs(library, "main", inputs_at(index, shapes))
"""


def gather(g: GraphBuilder) -> str:
    return str(g.node("Gather", g.input("x", (8, 16)), g.input("n", (3,), INT64)))


def embedding(g: GraphBuilder) -> str:
    return str(g.node("Gather", g.weight(8, 16), g.input("n", (3,), INT32)))


def computed(g: GraphBuilder) -> str:
    position = g.node("Cast", g.input("n", (3,)), to=INT64)
    return str(g.node("Gather", g.weight(8, 16), position))


def gather_elements(g: GraphBuilder) -> str:
    return str(g.node("GatherElements", g.input("x", (8, 16)), g.input("n", (3, 16), INT64)))


def gather_points(g: GraphBuilder) -> str:
    return str(g.node("GatherND", g.input("x", (8, 8)), g.input("n", (3, 2), INT64)))


def gather_points_of_batches(g: GraphBuilder) -> str:
    return str(g.node("GatherND", g.input("x", (2, 8, 5)), g.input("n", (2, 3, 1), INT64), batch_dims=1))


def scatter_elements(g: GraphBuilder) -> str:
    return str(
        g.node("ScatterElements", g.input("x", (8, 16)), g.input("n", (3, 16), INT64), g.input("u", (3, 16)))
    )


def scatter_points(g: GraphBuilder) -> str:
    return str(
        g.node(
            "ScatterND",
            g.input("x", (8, 8)),
            g.input("n", (3, 2), INT64),
            g.input("u", (3,)),
            reduction="add",
        )
    )


def embedding_layer(g: GraphBuilder) -> str:
    words, segments = g.input("n", (1, 4), INT32), g.input("m", (1, 4), INT32)
    weights = [g.weight(8, 8) for _ in range(3)] + [g.weight(8), g.weight(8)]
    names = g.node("EmbedLayerNormalization", words, segments, *weights, outputs=2, domain="com.microsoft")
    return str(names[0])


def features(g: GraphBuilder) -> str:
    return str(
        g.node(
            "ArrayFeatureExtractor", g.input("x", (3, 8)), g.input("n", (1, 2), INT64), domain="ai.onnx.ml"
        )
    )


def regions(g: GraphBuilder) -> str:
    rois = g.constant(np.array([[0, 0, 6, 6]], np.float32))
    batch = g.input("n", (1,), INT64)
    return str(g.node("RoiAlign", g.input("x", (1, 2, 8, 8)), rois, batch, output_height=2, output_width=2))


NETWORKS: tuple[Callable[[GraphBuilder], str], ...] = (
    gather,
    embedding,
    computed,
    gather_elements,
    gather_points,
    gather_points_of_batches,
    scatter_elements,
    scatter_points,
    embedding_layer,
    features,
    regions,
)


def inputs_at(index: int, shapes: list[tuple[tuple[int, ...], str]]) -> list[np.ndarray]:
    """Return inputs of which each integer is this index, or the nearest that its type has; floats of one dimension as well."""
    return [
        np.full(shape, np.clip(index, np.iinfo(dtype).min, np.iinfo(dtype).max), dtype)
        if np.dtype(dtype).kind == "i"
        else np.full(shape, index, dtype)
        if len(shape) == 1
        else np.ones(shape, np.float32)
        for shape, dtype in shapes
    ]


def build(network: Callable[[GraphBuilder], str], folder: Path) -> Path:
    builder = GraphBuilder()
    builder.output(network(builder))
    path = folder / network.__name__
    path.write_bytes(builder.model(18).SerializeToString())
    loaded = load_relax(path, Binding(), parse_target("host"))
    library = path.with_suffix(".so")
    build_model(loaded.module, UNOPTIMISED, library, default_schedules=False)
    path.with_suffix(".inputs").write_text(repr([(tuple(spec.shape), spec.dtype) for spec in loaded.inputs]))
    return library


def test_no_index_of_an_input_reaches_other_memory(tmp_path: Path) -> None:
    """Before, each of these ended the process with SIGSEGV: it had read, or written, up to terabytes away from a tensor."""
    for network in NETWORKS:
        build(network, tmp_path)
    folders = {
        str(Path(module).parent) for module in (__file__, sys.modules["onnx_reference"].__file__ or "")
    }
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        env={"PYTHONPATH": ":".join(folders)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, (ran.stdout.splitlines()[-1:], ran.stderr[-2000:])
    assert len(ran.stdout.splitlines()) == len(NETWORKS) * len(FAR)


@pytest.mark.parametrize("index", [8, 11, -9, -12])
def test_what_is_read_in_place_of_an_index_out_of_range_is_of_the_tensor(index: int, tmp_path: Path) -> None:
    """Before, these were the numbers that lay beside the tensor."""
    table = np.arange(1, 129, dtype=np.float32).reshape(8, 16)
    indices = np.array([index, 3, -2], np.int64)
    taken = library_outputs(build(gather, tmp_path), "main", [table, indices])[0]
    np.testing.assert_array_equal(taken[1:], table[[3, 6]])
    np.testing.assert_array_equal(taken[0], table[7 if index > 0 else 0])
