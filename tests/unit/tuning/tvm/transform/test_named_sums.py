"""Dimensions that others add up to, by their names or by what masks are for."""

from __future__ import annotations

from typing import Any

from tunefarm_tuning.tvm.transform.named_sums import named_sums
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShape
from tunefarm_tuning.workload.task import TensorSpec

Sizes = tuple[int | str, ...]


def conditions_of(
    inputs: dict[str, Sizes], *bound: dict[str, int], integers: tuple[str, ...] = (), guessed: bool = False
) -> list[tuple[Any, Any]]:
    """Return the dimension and what it is equal to of each condition, in the bound sizes of the dimensions."""
    shapes: list[OpenShape] = [
        tuple(OpenDimension(name=size) if isinstance(size, str) else size for size in shape)
        for shape in inputs.values()
    ]
    specs = [
        tuple(
            TensorSpec(
                name=name,
                shape=tuple(sizes[size] if isinstance(size, str) else size for size in shape),
                dtype="int64" if name in integers else "float32",
            )
            for name, shape in inputs.items()
        )
        for sizes in bound
    ]
    conditions = named_sums(shapes, specs)[guessed]
    assert all(condition["kind"] == "equal" for condition in conditions)
    return [(condition["size"], condition["of"]) for condition in conditions]


def test_a_name_that_adds_up_others() -> None:
    inputs: dict[str, Sizes] = {"mask": (1, "past + 1"), "key": (1, 2, "past", 16)}
    assert conditions_of(inputs, {"past + 1": 10, "past": 9}) == [("past + 1", ["+", "past", 1])]
    inputs = {"x": ("2 * n - m",), "y": ("n", "m")}
    assert conditions_of(inputs, {"2 * n - m": 5, "n": 4, "m": 3}) == [
        ("2 * n - m", ["-", ["*", 2, "n"], "m"])
    ]


def test_a_mask_over_a_cache_and_new_words() -> None:
    inputs: dict[str, Sizes] = {
        "input_ids": ("batch", "words"),
        "attention_mask": ("batch", "total"),
        "past_key": ("batch", 4, "past", 16),
    }
    sizes = {"batch": 2, "words": 3, "past": 9, "total": 12}
    integers = ("input_ids", "attention_mask")
    assert conditions_of(inputs, sizes, integers=integers) == [], "it may be the mask of something else"
    assert conditions_of(inputs, sizes, integers=integers, guessed=True) == [
        ("total", ["+", "past", "words"])
    ]
    assert conditions_of(inputs, sizes | {"total": 13}, integers=integers, guessed=True) == []


def test_sizes_that_do_not_add_up_set_no_condition() -> None:
    """One set of shapes is enough to show that a name does not mean what it says."""
    inputs: dict[str, Sizes] = {"mask": ("past + 1",), "key": ("past", 16)}
    assert conditions_of(inputs, {"past + 1": 5, "past": 9}) == []
    assert conditions_of(inputs, {"past + 1": 10, "past": 9}, {"past + 1": 10, "past": 4}) == []


def test_names_that_are_no_sums() -> None:
    for name in ("height", "d_0", "unk__17", "n + other", "n //", "f(n)"):
        assert conditions_of({"x": (name, "n")}, {name: 3, "n": 2}) == []
