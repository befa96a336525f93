"""Files of samples: what fits a network, and what is refused with which words."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.reference.sample_file import Samples, read_sample_file
from tunefarm_tuning.reference.samples import MAX_USED_SETS, check_sample_head, used_sets
from tunefarm_tuning.workload.task import TensorSpec

PIXELS = TensorSpec(name="pixels", shape=(1, 2, 3), dtype="float32")
TOKENS = TensorSpec(name="tok/ens", shape=(1, 4), dtype="int64")
SPECS = (PIXELS, TOKENS)
LIMIT_BYTES = 1 << 20


def good() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    return {
        "pixels": rng.standard_normal((5, 1, 2, 3)).astype(np.float32),
        "tok/ens": rng.integers(0, 100, (5, 1, 4)),
    }


def read(path: Path, specs: tuple[TensorSpec, ...] = SPECS, limit_bytes: int = LIMIT_BYTES) -> Samples:
    return read_sample_file(path, [specs], limit_bytes)


def refused(
    path: Path, specs: tuple[TensorSpec, ...] = SPECS, limit_bytes: int = LIMIT_BYTES
) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as raised:
        read(path, specs, limit_bytes)
    return raised.value


def zipped(path: Path, members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def npy(array: NDArray[Any], *, pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_stacked_arrays_are_sample_sets(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "s.npz", **good())
    samples = read(tmp_path / "s.npz")
    assert samples.sets == 5
    for array, spec, given in zip(samples.set_of(3), SPECS, good().values(), strict=True):
        assert array.shape == spec.shape
        assert str(array.dtype) == spec.dtype
        np.testing.assert_array_equal(array, given[3])


def test_an_array_of_exactly_the_inputs_shape_is_in_every_set(tmp_path: Path) -> None:
    arrays = good() | {"tok/ens": np.arange(4).reshape(1, 4)}
    np.savez(tmp_path / "s.npz", **arrays)
    samples = read(tmp_path / "s.npz")
    assert samples.sets == 5
    np.testing.assert_array_equal(samples.set_of(4)[1], [[0, 1, 2, 3]])
    np.savez(tmp_path / "one.npz", **{name: array[0] for name, array in good().items()})
    assert read(tmp_path / "one.npz").sets == 1


def test_arrays_may_be_named_by_position(tmp_path: Path) -> None:
    """An input called ``file`` cannot be a keyword of numpy.savez."""
    specs = (TensorSpec(name="file", shape=(2,), dtype="float32"), TOKENS)
    np.savez(tmp_path / "s.npz", np.ones((3, 2), np.float32), good()["tok/ens"][:3])
    assert read(tmp_path / "s.npz", specs).sets == 3
    assert refused(tmp_path / "s.npz").code == "sample-shape"


def test_scalars_other_byte_orders_fortran_and_bfloat16(tmp_path: Path) -> None:
    specs = (
        TensorSpec(name="rate", shape=(), dtype="int64"),
        TensorSpec(name="x", shape=(2, 3), dtype="float32"),
        TensorSpec(name="b", shape=(2,), dtype="bfloat16"),
        TensorSpec(name="mask", shape=(2,), dtype="bool"),
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(
        tmp_path / "s.npz",
        rate=np.array([8000, 16000]),
        x=np.asfortranarray(np.stack([x, -x])).astype(">f4"),
        b=np.array([[1.5, 2], [3, 4]], ml_dtypes.bfloat16),
        mask=np.array([[True, False], [False, True]]),
    )
    samples = read(tmp_path / "s.npz", specs)
    rate, second, b, mask = samples.set_of(1)
    assert int(rate) == 16000
    np.testing.assert_array_equal(second, -x)
    assert second.dtype == np.float32
    assert (str(b.dtype), b.astype(np.float32).tolist()) == ("bfloat16", [3.0, 4.0])
    assert mask.tolist() == [False, True]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"tok/ens": None}, "missing-sample", ["no array for the input 'tok/ens'", "it has 'pixels'"]),
        (
            {"pixels": None, "pixel": good()["pixels"]},
            "unknown-sample",
            ["no input 'pixel'", "its inputs are 'pixels', 'tok/ens'", "did you mean 'pixels'?"],
        ),
        (
            {"pixels": good()["pixels"].astype(np.float64)},
            "sample-dtype",
            ["input 'pixels' is float64", "wanted is float32 [1, 2, 3]", ".astype('float32')"],
        ),
        (
            {"tok/ens": good()["tok/ens"].astype(np.int32)},
            "sample-dtype",
            ["input 'tok/ens' is int32", "wanted is int64 [1, 4]"],
        ),
        (
            {"pixels": np.zeros((5, 2, 3), np.float32)},
            "sample-shape",
            ["'pixels' has the shape [5, 2, 3]", "[N, 1, 2, 3]", "array[:, None]"],
        ),
        (
            {"pixels": np.zeros((5, 1, 3, 2), np.float32)},
            "sample-shape",
            ["'pixels' has the shape [5, 1, 3, 2]; wanted is float32 [1, 2, 3], or [N, 1, 2, 3]"],
        ),
        ({"pixels": np.zeros((), np.float32)}, "sample-shape", ["'pixels' has the shape []"]),
        (
            {"pixels": good()["pixels"][:4]},
            "sample-count",
            ["different numbers of samples: 'pixels' has 4, 'tok/ens' has 5"],
        ),
        ({"pixels": good()["pixels"][:0]}, "empty-samples", ["'pixels' is empty", "[0, 1, 2, 3]"]),
        (
            {"pixels": np.array([[{"a": 1}]], dtype=object)},
            "pickled-samples",
            ["'pixels' holds pickled Python objects, which are never loaded", "wanted is float32"],
        ),
        ({"pixels": np.zeros(3, [("a", "f4")])}, "sample-dtype", ["'pixels' is [('a', '<f4')]"]),
    ],
)
def test_what_does_not_fit(
    change: Mapping[str, NDArray[Any] | None], code: str, words: list[str], tmp_path: Path
) -> None:
    arrays = {name: array for name, array in (good() | dict(change)).items() if array is not None}
    np.savez(tmp_path / "s.npz", **arrays)
    error = refused(tmp_path / "s.npz")
    assert error.code == code
    for word in words:
        assert word in error.message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(value: float, tmp_path: Path) -> None:
    arrays = good()
    arrays["pixels"][2, 0, 1, 1] = value
    np.savez(tmp_path / "s.npz", **arrays)
    error = refused(tmp_path / "s.npz")
    assert error.code == "sample-not-finite"
    assert "'pixels' has an element that is NaN or infinite, in sample set 2 at [0, 1, 1]:" in error.message
    arrays["pixels"][3, 0, 0, 0] = value
    np.savez(tmp_path / "s.npz", **arrays)
    message = refused(tmp_path / "s.npz").message
    assert "has 2 elements that are NaN or infinite; the first is in sample set 2 at [0, 1, 1]:" in message
    specs = (TensorSpec(name="b", shape=(3,), dtype="bfloat16"),)
    np.savez(tmp_path / "b.npz", b=np.array([0, value, 0], ml_dtypes.bfloat16))
    assert refused(tmp_path / "b.npz", specs).code == "sample-not-finite"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_a_name(tmp_path: Path) -> None:
    arrays = [("pixels.npy", npy(good()["pixels"]))] * 2
    error = refused(zipped(tmp_path / "s.npz", arrays))
    assert (error.code, error.fields["input"]) == ("duplicate-sample", "pixels")


def test_a_file_belongs_to_the_set_of_shapes_that_it_fits(tmp_path: Path) -> None:
    def image(width: int) -> TensorSpec:
        return TensorSpec(name="x", shape=(1, 3, width), dtype="float32")

    shapes = [[image(width)] for width in (160, 320, 640)]
    np.savez(tmp_path / "s.npz", x=np.zeros((7, 1, 3, 320), np.float32))
    samples = read_sample_file(tmp_path / "s.npz", shapes, LIMIT_BYTES)
    assert (samples.fits, samples.sets) == (1, 7)
    np.savez(tmp_path / "w.npz", x=np.zeros((1, 3, 640), np.float32))
    assert read_sample_file(tmp_path / "w.npz", shapes, LIMIT_BYTES).fits == 2
    np.savez(tmp_path / "n.npz", x=np.zeros((1, 3, 100), np.float32))
    with pytest.raises(InvalidInputError, match="do not fit any of the network's 3 sets of shapes") as none:
        read_sample_file(tmp_path / "n.npz", shapes, LIMIT_BYTES)
    assert "'x' [1, 3, 100]" in none.value.message
    assert "'x' [1, 3, 320]" in none.value.message


def test_an_input_that_is_bound_to_a_value_takes_no_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", sr=np.array(8000), **good())
    with pytest.raises(InvalidInputError, match="'sr' is bound to a value"):
        read_sample_file(tmp_path / "s.npz", [SPECS], LIMIT_BYTES, bound=["sr"])


def test_other_entries_and_other_methods(tmp_path: Path) -> None:
    entries = [("pixels.npy", npy(good()["pixels"])), ("../notes.txt", b"hello")]
    error = refused(zipped(tmp_path / "s.npz", entries))
    assert (error.code, "'../notes.txt'" in error.message) == ("not-npz", True)
    assert refused(zipped(tmp_path / "l.npz", entries[:1], zipfile.ZIP_LZMA)).code == "not-npz"
    assert refused(zipped(tmp_path / "e.npz", [])).code == "empty-samples"


def test_arrays_over_the_limit_are_not_unpacked(tmp_path: Path) -> None:
    """A zip of some kilobytes may say that it unpacks to gigabytes."""
    path = zipped(tmp_path / "bomb.npz", [("pixels.npy", bytes(8 << 20))], zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 16 << 10
    error = refused(path)
    assert error.code == "samples-too-large"
    assert error.fields == {"size_bytes": 8 << 20, "limit_bytes": LIMIT_BYTES}


def test_a_zip_that_lies_about_a_size(tmp_path: Path) -> None:
    path = zipped(tmp_path / "s.npz", [("pixels.npy", bytes(8 << 20))], zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 200)  # the unpacked size
    path.write_bytes(content)
    error = refused(path)
    assert error.code in ("damaged-samples", "missing-sample")
    specs = (PIXELS,)
    assert refused(path, specs).code == "damaged-samples"


def huge_header(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (118 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (huge_header("(1000000000000, 1, 2, 3)") + bytes(24), "damaged-samples"),
        (huge_header("(-5, 1, 2, 3)") + bytes(24), "sample-shape"),
        (huge_header("(1, 2, 3)") + bytes(20), "damaged-samples"),
        (huge_header("(1, 2, 3)") + bytes(28), "damaged-samples"),
        (huge_header("__import__('os')") + bytes(24), "damaged-samples"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "damaged-samples"),
        (b"\x93NUMPY", "damaged-samples"),
        (b"hello", "damaged-samples"),
    ],
)
def test_headers_that_lie(content: bytes, code: str, tmp_path: Path) -> None:
    error = refused(zipped(tmp_path / "s.npz", [("pixels.npy", content)]), (PIXELS,))
    assert error.code == code
    assert "pixels" in error.message


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:200] + bytes([content[200] ^ 255]) + content[201:],
    ],
)
def test_damaged_files(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, **good())
    path.write_bytes(damage(path.read_bytes()))
    assert refused(path).code == "damaged-samples"


def test_names_of_strangers_are_shown_without_control_characters(tmp_path: Path) -> None:
    error = refused(zipped(tmp_path / "s.npz", [("\x1b[31mred\n.npy", npy(good()["pixels"]))]))
    assert error.code == "unknown-sample"
    assert error.message.isprintable()


def test_the_sets_that_are_run_are_spread_over_the_file() -> None:
    assert used_sets(3) == (0, 1, 2)
    spread = used_sets(1000)
    assert len(spread) == MAX_USED_SETS
    assert (spread[0], spread[-1]) == (0, 999)
    assert list(spread) == sorted(set(spread))
    assert all(len(set(used_sets(count))) == min(count, MAX_USED_SETS) for count in range(1, 50))


@pytest.mark.parametrize(
    ("head", "code", "word"),
    [
        (b"", "empty-samples", "is empty"),
        (b"PK\x05\x06\x00\x00", "empty-samples", "is empty"),
        (b"\x93NUMPY\x01\x00", "not-npz", "a single array (.npy)"),
        (b"\x80\x04\x95", "not-npz", "pickled"),
        (b"hello", "not-npz", "numpy.savez"),
    ],
)
def test_first_bytes_that_are_no_npz(head: bytes, code: str, word: str) -> None:
    with pytest.raises(InvalidInputError, match=r"numpy\.savez") as raised:
        check_sample_head(head)
    assert raised.value.code == code
    assert word in raised.value.message
