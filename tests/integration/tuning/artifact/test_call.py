"""Calling an artifact: which arrays are copied, and who owns the memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_net import build_odd, odd_inputs, odd_outputs
from onnx_models import GraphBuilder
from plain_artifacts import plain_artifact

from tunefarm_tuning.artifact.arrays import InputSlot, OutputTaker, numpy_dtype
from tunefarm_tuning.artifact.loader import ArtifactInputError, TunedModel, aligned_empty, load


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_artifact(build_odd(), tmp_path_factory.mktemp("odd") / "odd.tunefarm")


@pytest.fixture
def model(path: Path) -> TunedModel:
    return load(path)


def right(outputs: dict[str, np.ndarray], inputs: dict[str, np.ndarray]) -> bool:
    expected = odd_outputs(inputs)
    return outputs.keys() == expected.keys() and all(
        outputs[name].dtype == array.dtype and np.array_equal(outputs[name], array)
        for name, array in expected.items()
    )


def aligned(array: np.ndarray, offset: int = 0) -> np.ndarray:
    """Return the array at an offset of some bytes from a multiple of 64."""
    memory = aligned_empty((array.nbytes + offset,), np.dtype(np.uint8))[offset:]
    copied: np.ndarray = memory.view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


class Foreign:
    """Another library's array: DLPack, and nothing of numpy's."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_outputs_stay_what_they_were(model: TunedModel) -> None:
    kept = []
    for seed in range(8):
        inputs = odd_inputs(seed)
        kept.append((inputs, model.run(inputs)))
    assert all(right(outputs, inputs) for inputs, outputs in kept)


def test_outputs_are_the_callers_to_write_to(model: TunedModel) -> None:
    for seed in range(4):
        inputs = {name: aligned(array) for name, array in odd_inputs(seed).items()}
        before = {name: array.copy() for name, array in inputs.items()}
        outputs = model.run(inputs)
        assert right(outputs, inputs)
        for name, output in outputs.items():  # one at a time: no output is an input's memory, or another's
            others = {other: array.copy() for other, array in outputs.items() if other != name}
            output[...] = 1
            assert all(np.array_equal(outputs[other], array) for other, array in others.items())
        assert all(np.array_equal(inputs[name], array) for name, array in before.items())
    assert right(model.run(odd_inputs(9)), odd_inputs(9))  # and no weight's


def test_a_large_output_is_not_copied(model: TunedModel) -> None:
    for seed in range(2):
        model.run(odd_inputs(seed))
    outputs = model.run(odd_inputs(3))
    assert not outputs["y"].flags.owndata  # it is the model's own memory, which is the caller's from now on
    assert outputs["weight"].flags.owndata
    assert outputs["double"].flags.writeable
    assert outputs["y"].flags.writeable


@pytest.mark.parametrize("offset", [0, 4, 16, 32, 60])
def test_any_address_will_do(model: TunedModel, offset: int) -> None:
    inputs = odd_inputs()
    for _ in range(3):
        assert right(model.run({**inputs, "x": aligned(inputs["x"], offset)}), inputs)


@pytest.mark.parametrize(
    ("offset", "is_copied", "is_copied_for_an_older_artifact"),
    [(0, False, False), (2, True, True), (4, False, True), (16, False, True)],
)
def test_what_begins_at_an_element_is_read_where_it_lies(
    offset: int, is_copied: bool, is_copied_for_an_older_artifact: bool
) -> None:
    import tvm

    spec = {"name": "x", "dtype": "float32", "shape": [64, 64]}
    array = aligned(np.ones((64, 64), np.float32), offset)
    for unaligned, copied in ((True, is_copied), (False, is_copied_for_an_older_artifact)):
        slot = InputSlot(spec, tvm.cpu(), unaligned=unaligned)
        for value in (array, Foreign(array)):
            tensor = slot.take(value)
            assert (tensor.data_ptr() != array.ctypes.data) == copied
            assert (tensor.numpy() == 1).all()


def _read_only(array: np.ndarray) -> np.ndarray:
    array = aligned(array)
    array.flags.writeable = False
    return array


def _strided(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array


def _backwards(array: np.ndarray) -> np.ndarray:
    return array[::-1].copy()[::-1] if array.ndim else array


class Subclass(np.ndarray):
    """An array with a name of its own."""


@pytest.mark.parametrize(
    "layout",
    [
        _read_only,
        _strided,
        _backwards,
        lambda a: a.copy(order="F"),
        lambda a: a.astype(a.dtype.newbyteorder()),
        lambda a: a.view(Subclass),
        np.ma.masked_array,
        lambda a: Foreign(aligned(a)),
        lambda a: Foreign(aligned(a, 16)),
        lambda a: memoryview(a) if a.ndim else a,
        lambda a: np.broadcast_to(a, (1, *a.shape))[0],
    ],
)
def test_any_array_will_do(model: TunedModel, layout: Callable[[np.ndarray], Any]) -> None:
    inputs = odd_inputs(5)
    for _ in range(3):
        assert right(model.run({name: layout(array) for name, array in inputs.items()}), inputs)
    assert right(model(*[layout(inputs[spec["name"]]) for spec in model.inputs]), inputs)


def test_inputs_that_do_not_fit_are_errors_in_words(model: TunedModel) -> None:
    inputs: dict[str, Any] = odd_inputs()
    cases: list[tuple[str, Any, str]] = [
        ("x", Foreign(inputs["x"].astype(np.float64)), r"'x' is float64, but the model takes float32"),
        ("x", Foreign(inputs["x"][:1]), r"'x' has shape \[1, 64, 64, 4\], but"),
        ("x", inputs["x"].astype(">f8"), r"'x' is float64, but"),
        ("small", [[1.0, 2.0], [3.0]], "'small' is not an array"),
        ("small", None, "'small' is object, but"),
        ("i", np.zeros((1,), np.int64), r"'i' has shape \[1\], but the model takes \[\]"),
        ("flag", np.zeros((3,), np.uint8), "'flag' is uint8, but the model takes bool"),
    ]
    for name, value, message in cases:
        with pytest.raises(ArtifactInputError, match=message):
            model.run({**inputs, name: value})
    assert right(model.run(inputs), inputs)


def test_nothing_is_needed_once_a_call_is_over(path: Path) -> None:
    outputs = [load(path).run(odd_inputs(seed)) for seed in range(3)]
    model = load(path)
    outputs += [
        model.run({name: aligned(array) for name, array in odd_inputs(seed).items()}) for seed in range(3)
    ]
    del model
    gc.collect()
    assert all(right(result, odd_inputs(number % 3)) for number, result in enumerate(outputs))


def test_threads_call_side_by_side(model: TunedModel) -> None:
    rights: list[bool] = []
    start = threading.Barrier(6)

    def work(number: int) -> None:
        start.wait(60)
        kept = []
        for i in range(30):
            inputs = odd_inputs(number * 100 + i % 3)
            kept.append((inputs, model.run(inputs)))
        rights.append(all(right(outputs, inputs) for inputs, outputs in kept))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rights == [True] * 6


def test_an_input_that_fails_leaves_no_trace(model: TunedModel) -> None:
    for _ in range(20):
        with pytest.raises(ArtifactInputError):
            model.run({**odd_inputs(), "small": "text"})
    assert len(model._main.idle) == 1  # no machine is lost


IN_ITS_OWN_FILE = """
import sys
sys.path.insert(0, sys.argv[1])
sys.modules["tunefarm_tuning"] = None
import numpy as np
from loader import InferenceSession, load
model = load(sys.argv[1])
inputs = {spec["name"]: np.ones(spec["shape"], spec["dtype"]) for spec in model.inputs}
assert model.run(inputs)["y"].sum() == inputs["x"].size
session = InferenceSession(sys.argv[1])
(double,) = session.run(["double"], inputs)
assert (double == 2).all() and session.get_inputs()[1].type == "tensor(int64)"
assert {name for name in sys.modules if "tunefarm" in name} == {
    "tunefarm_tuning", *(f"tunefarm_{n}" for n in (
        "arrays batches cuda_runtime entry machine_check model onednn_library onnxruntime_parts other_shapes part_calls session sizes specialisations "
        "threads".split()
    ))
}
"""


def test_all_of_it_is_in_the_file(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", IN_ITS_OWN_FILE, str(path)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_runtime_of_tvm_is_enough(path: Path, tmp_path: Path) -> None:
    """A board may be without the compiler (`tunefarm device trim`). A kernel that sorts calls a library of its own."""
    graph = GraphBuilder()
    values, _ = graph.node("TopK", graph.input("x", [2, 6]), graph.ints(3), outputs=2)
    graph.output(values, [2, 3])
    sorts = plain_artifact(graph.model(), tmp_path / "sorts.tunefarm")
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from loader import load
x = np.arange(12, dtype=np.float32).reshape(2, 6)
(values,) = load(sys.argv[2])(x=x).values()
assert (values == [[5, 4, 3], [11, 10, 9]]).all(), values
inputs = {spec["name"]: np.ones(spec["shape"], spec["dtype"]) for spec in load(sys.argv[1]).inputs}
assert load(sys.argv[1]).run(inputs)["y"].sum() == inputs["x"].size
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), str(sorts)],
        capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "TVM_USE_RUNTIME_LIB": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "bool", "int8", "uint64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (40, 300)])
def test_every_dtype_goes_in_and_out(dtype: str, shape: tuple[int, ...]) -> None:
    import tvm

    spec = {"name": "x", "dtype": dtype, "shape": list(shape)}
    slot, taker = InputSlot(spec, tvm.cpu()), OutputTaker([spec], tvm.cpu())
    rng = np.random.default_rng(0)
    for _ in range(3):
        array = rng.integers(0, 100, shape).astype(numpy_dtype(dtype)).reshape(shape)
        for result in (
            array,
            aligned(array) if array.size else array,
            np.asfortranarray(array).reshape(shape),
        ):
            outputs = taker.take(slot.take(result), [])
            assert outputs is not None
            assert (outputs["x"].dtype, outputs["x"].shape) == (array.dtype, shape)
            np.testing.assert_array_equal(outputs["x"], array)
