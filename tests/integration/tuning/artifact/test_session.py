"""Equal calls of ONNX Runtime's and of our ``InferenceSession`` have equal results, or both fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from odd_net import build_odd, odd_inputs
from plain_artifacts import plain_artifact

from tunefarm_tuning.artifact.loader import (
    ArtifactError,
    ArtifactInputError,
    InferenceSession,
    ThreadsWarning,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "odd.tunefarm"
    path.with_suffix(".onnx").write_bytes(build_odd().SerializeToString())
    return plain_artifact(build_odd(), path)


@pytest.fixture(scope="module")
def ours(path: Path) -> InferenceSession:
    return InferenceSession(path, None, ["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def theirs(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        str(path.with_suffix(".onnx")), options, providers=["CPUExecutionProvider"]
    )


FEED = odd_inputs(4)
SMALL = FEED["small"]

CALLS: dict[str, tuple[Any, Any]] = {
    "all": (None, FEED),
    "an empty list is all": ([], FEED),
    "some, in their order": (["double", "y"], FEED),
    "a tuple": (("y",), FEED),
    "one twice": (["y", "y"], FEED),
    "an unknown output": (["z"], FEED),
    "a text": ("y", FEED),
    "an input missing": (None, {"x": FEED["x"]}),
    "no inputs": (None, {}),
    "an input too many": (None, {**FEED, "z": SMALL}),
    "no mapping": (None, list(FEED.values())),
    "nothing": (None, None),
    "another dtype": (None, {**FEED, "small": SMALL.astype(np.float64)}),
    "another integer": (None, {**FEED, "i": np.array(4, np.int32)}),
    "another shape": (None, {**FEED, "small": SMALL[:2]}),
    "another rank": (None, {**FEED, "small": SMALL[0]}),
    "a list": (None, {**FEED, "small": SMALL.tolist()}),
    "a list of bools": (None, {**FEED, "flag": FEED["flag"].tolist()}),
    "a ragged list": (None, {**FEED, "small": [[1.0], [1.0, 2.0]]}),
    "an int": (None, {**FEED, "i": 4}),
    "a scalar of numpy's": (None, {**FEED, "i": np.int64(4)}),
    "None": (None, {**FEED, "i": None}),
    "text as an input": (None, {**FEED, "small": "text"}),
    "strided": (None, {**FEED, "small": np.repeat(SMALL, 2, axis=0)[::2]}),
    "in Fortran's order": (None, {**FEED, "x": FEED["x"].copy(order="F")}),
    "a subclass": (None, {**FEED, "small": np.ma.masked_array(SMALL)}),
}


@pytest.mark.parametrize("call", CALLS)
def test_both_do_the_same(ours: InferenceSession, theirs: Any, call: str) -> None:
    names, feed = CALLS[call]
    expected, their_error = outcome(lambda: theirs.run(names, feed))
    results, our_error = outcome(lambda: ours.run(names, feed))
    assert (their_error is None) == (our_error is None), (their_error, our_error)
    assert their_error is not None or len(results) == len(expected)
    for mine, other in zip(results, expected, strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(mine, other)


def outcome(run: Callable[[], list[np.ndarray]]) -> tuple[list[np.ndarray], Exception | None]:
    try:
        return run(), None
    except Exception as error:
        return [], error


def test_what_the_session_says_of_itself(ours: InferenceSession, theirs: Any, path: Path) -> None:
    for mine, others in (
        (ours.get_inputs(), theirs.get_inputs()),
        (ours.get_outputs(), theirs.get_outputs()),
    ):
        assert [(n.name, n.shape, n.type) for n in mine] == [(n.name, n.shape, n.type) for n in others]
    assert ours.get_overridable_initializers() == theirs.get_overridable_initializers() == []
    assert ours.get_providers() == ["TunefarmExecutionProvider"]
    meta = ours.get_modelmeta()
    assert (meta.graph_name, meta.producer_name) == ("odd", "tunefarm")
    assert meta.custom_metadata_map["target_key"] == "llvm"
    assert {name for name in dir(theirs.get_modelmeta()) if not name.startswith("_")} == {
        name for name in dir(meta) if not name.startswith("_")
    }


def test_options_that_mean_something(path: Path) -> None:
    options = onnxruntime.SessionOptions()
    assert InferenceSession(path, options).model.threads == 1
    options.intra_op_num_threads = 2
    with pytest.warns(ThreadsWarning):
        assert InferenceSession(str(path), sess_options=options).model.threads == 2
    with pytest.warns(UserWarning, match="runs there, not on CUDAExecutionProvider"):
        InferenceSession(path, providers=[("CUDAExecutionProvider", {"device_id": 0})])


def test_what_is_no_artifact(path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        InferenceSession(path.with_suffix(".onnx"))
    assert caught.value.code == "not-an-artifact"
    with pytest.raises(ArtifactInputError, match="from its path, not from bytes"):
        InferenceSession(path.read_bytes())  # type: ignore[arg-type]
