"""The format of a file, and its completeness, by its bytes and name."""

from __future__ import annotations

from pathlib import Path

import onnx_models
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_convert import FileFormat, check_file, check_head, check_onnx_bytes, file_format
from tunefarm_tuning.core.errors import InvalidModelError

# The root table at 60, its vtable of 56 bytes before it, the module 4 bytes behind.
JAX_EXPORT = b"<\0\0\0" + b"8\0`\0" + b"\4\0" * 26 + b"8\0\0\0" + b"\0" * 60

WHOLE = onnx_models.mlp().SerializeToString()


def code_of(data: bytes) -> str | None:
    try:
        check_onnx_bytes(data)
    except InvalidModelError as error:
        return error.code
    return None


def test_a_whole_model_passes() -> None:
    assert code_of(WHOLE) is None


@given(st.integers(min_value=3, max_value=len(WHOLE) - 1))
def test_a_model_cut_anywhere_is_told_to_be_cut(length: int) -> None:
    code = code_of(WHOLE[:length])
    # Between two outermost fields the rest is missing without a trace; the parser or the checker sees it then.
    assert code in ("truncated-model", None)


def test_the_message_says_how_much_is_missing() -> None:
    with pytest.raises(InvalidModelError, match="bytes or more are missing"):
        check_onnx_bytes(WHOLE[: len(WHOLE) // 2])


def test_a_file_of_an_impossible_version_is_not_told_to_be_cut() -> None:
    assert code_of(b"\x08\x0a" + b"\x3a\x7frest") == "truncated-model"
    assert code_of(b"\x08{" + b"\x3a\x7frest") == "not-protobuf"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"PK\x03\x04rest", "PyTorch"),
        (b"PK\x03\x04" + bytes(26) + b"manifest.json", "an artifact that is compiled already"),
        (b"\x80\x02}q\x00", "PyTorch"),
        (b"\x89HDF\r\n\x1a\n", "Keras"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"ML\xefR\x0dStableHLO_v1.0.0", "tunefarm models convert"),
        (b"module @jit_f {", "tunefarm models convert"),
        (b'#loc1 = loc("x")', "tunefarm models convert"),
        (b'"builtin.module"() ({', "tunefarm models convert"),
        (JAX_EXPORT, "tunefarm models convert"),
        (b"  <!DOCTYPE html><html>", "web page"),
        (b"\x1f\x8b\x08\x00", "gzip"),
    ],
)
def test_well_known_other_files_are_named(data: bytes, word: str) -> None:
    with pytest.raises(InvalidModelError, match=word) as caught:
        check_onnx_bytes(data)
    assert caught.value.code == "not-protobuf"


@given(st.binary(max_size=200))
def test_any_bytes_pass_or_are_a_clear_error(data: bytes) -> None:
    assert code_of(data) in (None, "empty-file", "truncated-model", "not-protobuf")


@pytest.mark.parametrize(
    ("data", "suffix", "expected"),
    [
        (WHOLE[:128], "", FileFormat.ONNX),
        (WHOLE[:128], ".onnx", FileFormat.ONNX),
        (b"\x1c\0\0\0TFL3", "", FileFormat.TFLITE),
        (b"\x08\x0d\x12\x08TFL3", "", FileFormat.ONNX),  # a producer's name, of another length
        (b"", ".tflite", FileFormat.TFLITE),
        (b"module @jit_f {", "", FileFormat.STABLEHLO),
        (b"hello", ".MLIR", FileFormat.STABLEHLO),
        (b"PK\x03\x04", "", FileFormat.TORCH_EXPORT),
        (b"hello", ".pt2", FileFormat.TORCH_EXPORT),
        (JAX_EXPORT, "", None),  # not all of it
        (b"hello", ".onnx", None),
        (b"", "", None),
    ],
)
def test_the_format_is_told_by_the_first_bytes_and_the_name(
    data: bytes, suffix: str, expected: FileFormat | None
) -> None:
    assert file_format(data, suffix) is expected


@given(st.binary(max_size=200))
def test_what_passes_as_a_complete_file_passes_by_its_first_bytes(data: bytes) -> None:
    if code_of(data) is None:
        check_head(data[:128])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty-file"),
        (b"root:x:0:0:root:/root:/bin/sh\n" * 20, "not-protobuf"),  # `r` is how a field of ONNX begins
        (WHOLE[: len(WHOLE) // 2], "truncated-model"),
        (WHOLE, None),
        (b"\x1c\0\0\0TFL3", None),
    ],
)
def test_a_file_that_is_plainly_no_model_is_refused(tmp_path: Path, data: bytes, code: str | None) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    if code is None:
        check_file(path)
        return
    with pytest.raises(InvalidModelError) as refused:
        check_file(path)
    assert refused.value.code == code
