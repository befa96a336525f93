"""Models with weights in files beside them, as PyTorch's exporter writes them."""

from __future__ import annotations

from pathlib import Path

import bad_models
import numpy as np
import onnx
import onnx_models
import pytest

from tunefarm_tuning import ImportLimits, import_model, write_single_file
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError, TunefarmError
from tunefarm_tuning.frontend.single_file import keeps_weights_outside
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.reference.single_run import run_in_onnxruntime

LIMITS = ImportLimits(memory_bytes=4 << 30, timeout_sec=120)


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """Return the path of a model whose weights are in ``mlp.onnx.data`` beside it."""
    path = tmp_path / "folder" / "mlp.onnx"
    path.parent.mkdir()
    onnx.save(
        onnx_models.ORDINARY["mlp"](),
        path,
        save_as_external_data=True,
        location="mlp.onnx.data",
        size_threshold=0,
    )
    assert (path.parent / "mlp.onnx.data").stat().st_size > 0
    return path


def test_the_weights_are_put_into_the_file(parted: Path, tmp_path: Path) -> None:
    plain, whole = tmp_path / "plain.onnx", tmp_path / "whole.onnx"
    onnx.save(onnx_models.ORDINARY["mlp"](), plain)
    assert keeps_weights_outside(parted)
    assert write_single_file(parted, whole, limits=LIMITS) == ("mlp.onnx.data",)
    assert not keeps_weights_outside(whole)
    assert not keeps_weights_outside(plain)
    model = import_model(whole, limits=LIMITS)
    inputs = random_inputs(model.inputs, seed=0)
    expected = run_in_onnxruntime(import_model(plain, limits=LIMITS), inputs, LIMITS)
    for output, wanted in zip(run_in_onnxruntime(model, inputs, LIMITS), expected, strict=True):
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("../secret", "cannot be read"),
        ("/etc/passwd", "cannot be read"),
        (
            "missing.data",
            "'missing.data', which has weights of the model, is missing: keep it beside mlp.onnx",
        ),
        (".ssh/id_ed25519", "'.ssh/id_ed25519', which the model calls a file of its weights, is hidden"),
        ("link.data", "'link.data', which has weights of the model, is a link: copy the file itself"),
        ("", "cannot be read"),
    ],
)
def test_other_files_are_not_read(location: str, words: str, parted: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * 4096)
    (parted.parent / "link.data").symlink_to(tmp_path / "secret")
    (parted.parent / ".ssh").mkdir()
    (parted.parent / ".ssh" / "id_ed25519").write_bytes(b"x" * 4096)
    model = onnx.load(parted, load_external_data=False)
    for tensor in model.graph.initializer:
        bad_models.external(tensor, location)
    parted.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidModelError, match=words) as caught:
        write_single_file(parted, tmp_path / "whole.onnx", limits=LIMITS)
    assert caught.value.code == "external-data"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "secret"]


def test_a_file_that_is_too_short_or_too_long_is_named(parted: Path, tmp_path: Path) -> None:
    data = parted.parent / "mlp.onnx.data"
    whole = data.read_bytes()
    data.write_bytes(whole[:10])
    with pytest.raises(
        InvalidModelError, match=r"other files cannot be read|bytes in another file"
    ) as caught:
        write_single_file(parted, tmp_path / "whole.onnx", limits=LIMITS)
    assert caught.value.code == "external-data"
    data.write_bytes(whole)
    model = onnx.load(parted, load_external_data=False)
    weight = model.graph.initializer[0]
    weight.dims[0] *= 2
    parted.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidModelError, match=r"bytes in another file, and needs \d+") as caught:
        write_single_file(parted, tmp_path / "whole.onnx", limits=LIMITS)
    assert caught.value.code == "external-data"


def test_a_linked_model_is_refused(parted: Path, tmp_path: Path) -> None:
    """As in the cache of a hub of models, where the files lie elsewhere."""
    link = tmp_path / "linked.onnx"
    link.symlink_to(parted)
    with pytest.raises(InvalidModelError, match=r"linked\.onnx is a link: copy the model") as caught:
        write_single_file(link, tmp_path / "whole.onnx", limits=LIMITS)
    assert caught.value.code == "external-data"


def test_the_same_word_elsewhere_in_a_file_is_none(tmp_path: Path) -> None:
    model = onnx_models.ORDINARY["mlp"]()
    model.metadata_props.add(key="location", value="Oslo")
    model.graph.metadata_props.add(key="location", value="Oslo" * 50)
    onnx.save(model, tmp_path / "net.onnx")
    assert not keeps_weights_outside(tmp_path / "net.onnx")
    (tmp_path / "net.tflite").write_bytes(b"\x1c\0\0\0TFL3" + b"j\x10\n\x08location\x12\x04Oslo")
    assert not keeps_weights_outside(tmp_path / "net.tflite")
    model.graph.initializer[0].external_data.add(key="location", value="x" * 150)
    onnx.save(model, tmp_path / "long.onnx", save_as_external_data=False)
    assert keeps_weights_outside(tmp_path / "long.onnx")


def test_bad_paths_are_refused(parted: Path, tmp_path: Path) -> None:
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"\xff" * 100)
    cases: list[tuple[Path, Path, type[TunefarmError], str]] = [
        (tmp_path / "none.onnx", tmp_path / "whole.onnx", InvalidInputError, "no-such-file"),
        (parted, parted, InvalidInputError, "same-file"),
        (parted, tmp_path / "no" / "folder" / "whole.onnx", InvalidInputError, "cannot-write"),
        (junk, tmp_path / "whole.onnx", InvalidModelError, "not-protobuf"),
    ]
    for source, to, kind, code in cases:
        with pytest.raises(kind) as caught:
            write_single_file(source, to, limits=LIMITS)
        assert caught.value.code == code
    assert not keeps_weights_outside(tmp_path / "none.onnx")
    (tmp_path / "empty.onnx").touch()
    assert not keeps_weights_outside(tmp_path / "empty.onnx")
