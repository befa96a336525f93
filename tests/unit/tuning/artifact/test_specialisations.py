"""Which of an artifact's entries runs a call, and how many samples are divided into batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.artifact.batches import BatchPlan
from tunefarm_tuning.artifact.loader import ArtifactInputError
from tunefarm_tuning.artifact.specialisations import ShapeTable, Specialisation


def item(entry: str, *shapes: list[int], batches: list[int] | None = None) -> dict[str, Any]:
    inputs = [{"name": f"x{i}", "shape": shape, "dtype": "float32"} for i, shape in enumerate(shapes)]
    outputs = [{"name": "y", "shape": [shapes[0][0], 5], "dtype": "float32"}]
    return {"entry": entry, "inputs": inputs, "outputs": outputs, "batches": batches or []}


def table(*items: dict[str, Any]) -> ShapeTable:
    return ShapeTable({**items[0], "specialisations": list(items)})


def test_a_call_finds_its_entry() -> None:
    shapes = table(
        item("main", [8, 16], [8, 4], batches=[5, 6, 7]),
        item("main_1", [1, 16], [1, 4]),
        item("main_2", [8, 32], [8, 4]),
    )
    assert shapes.find(((1, 16), (1, 4)))[0].entry == "main_1"
    assert shapes.find(((8, 32), (8, 4)))[0].entry == "main_2"
    found_item, count = shapes.find(((6, 16), (6, 4)))
    assert (found_item.entry, count) == ("main", 6)
    with pytest.raises(ArtifactInputError, match=r"The nearest is 'x0' \[8, 32\], 'x1' \[8, 4\]"):
        shapes.find(((8, 31), (8, 4)))
    with pytest.raises(ArtifactInputError):  # the batches of all inputs go together
        shapes.find(((6, 16), (5, 4)))


def test_code_of_its_own_comes_before_a_batch_that_is_filled_up() -> None:
    shapes = table(item("main", [8, 2], batches=[4, 5]), item("main_1", [4, 2]))
    assert shapes.find(((4, 2),)) == (shapes.specialisations[1], None)


def test_an_artifact_without_a_list_has_one_entry() -> None:
    single = item("main", [1, 3])
    shapes = ShapeTable({"inputs": single["inputs"], "outputs": single["outputs"]})
    assert shapes.is_single
    assert shapes.open_shape("inputs", 0) == [1, 3]


def test_dimensions_that_vary_have_names() -> None:
    shapes = table(item("main", [8, 16]), item("main_1", [8, 32]))
    assert shapes.open_shape("inputs", 0) == [8, "x0_dim_1"]
    assert shapes.open_shape("outputs", 0) == [8, 5]
    assert table(item("main", [8, 16], batches=[7])).open_shape("outputs", 0) == ["y_dim_0", 5]


def test_a_long_list_is_cut_in_messages() -> None:
    items = [item(f"main_{n}" if n else "main", [1, n + 1]) for n in range(20)]
    with pytest.raises(ArtifactInputError, match="and 12 more"):
        table(*items).find(((3, 3),))


def batch(size: int, latency_sec: float | None) -> Specialisation:
    specs = ({"name": "x", "shape": [size, 2], "dtype": "float32"},)
    return Specialisation(entry=f"b{size}", inputs=specs, outputs=specs, latency_sec=latency_sec)


@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True),
    st.integers(0, 500),
    st.booleans(),
)
def test_batches_hold_all_samples(sizes: list[int], count: int, timed: bool) -> None:
    plan = BatchPlan([batch(size, 1.0 + size if timed else None) for size in sorted(sizes)])
    batches = [item.batch or 0 for item in plan.batches(count)]
    assert sum(batches) >= count
    assert sum(batches[:-1]) < count or not count
    assert not count or sum(batches) - count < batches[-1]


def test_batches_take_the_least_time() -> None:
    plan = BatchPlan([batch(1, 1.0), batch(4, 2.0), batch(8, 9.0)])
    assert [item.batch for item in plan.batches(8)] == [4, 4]
    assert [item.batch for item in plan.batches(5)] == [4, 1]
    assert [item.batch for item in plan.batches(7)] == [4, 4]
    assert {item.batch for item in plan.batches(1000)} == {4}
