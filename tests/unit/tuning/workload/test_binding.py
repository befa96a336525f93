"""What a caller binds: read from what they give, and to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.workload.binding import MAX_VALUE_ELEMENTS, Binding, value_shape

numbers = (
    st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    numbers,
    lambda inner: st.lists(inner, min_size=2, max_size=2).map(lambda pair: [pair[0]] * 2),
    max_leaves=8,
)
shapes = st.lists(st.integers(1, 1 << 30), max_size=4)


@given(st.dictionaries(st.text(max_size=5), shapes), st.dictionaries(st.text(max_size=5), values))
def test_a_binding_survives_json(given_shapes: dict[str, Any], given_values: dict[str, Any]) -> None:
    binding = Binding.of(given_shapes, given_values)
    assert Binding.from_json(json.loads(json.dumps(binding.to_json()))) == binding
    assert bool(binding) == bool(given_shapes or given_values)


def test_the_json_of_a_release_without_values_is_read() -> None:
    assert Binding.from_json({"shapes": {"x": [1, 3]}}) == Binding(shapes={"x": (1, 3)})
    assert Binding.from_json({}) == Binding()


def test_arrays_and_sequences_become_plain_numbers() -> None:
    binding = Binding.of(
        {"x": (np.int64(1), 3)},
        {"sr": np.int64(16000), "scales": np.array([[1.5, 2.5]]), "on": np.bool_(True)},
    )
    assert binding == Binding(shapes={"x": (1, 3)}, values={"sr": 16000, "scales": ((1.5, 2.5),), "on": True})
    assert type(binding.values["sr"]) is int
    assert [value_shape(value) for value in binding.values.values()] == [(), (1, 2), ()]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("fast", "'fast' is not a number"),
        (None, "'None' is not a number"),
        (float("nan"), "nan is not finite"),
        ([1.0, float("inf")], "inf is not finite"),
        (1 << 64, "does not fit into 64 bits"),
        ([], "it is empty"),
        ([[1, 2], [3]], "rows have different lengths"),
        ([[1], 2], "rows have different lengths"),
        ([[[[[[[[[1]]]]]]]]], "more than 8 dimensions"),
        ([0] * (MAX_VALUE_ELEMENTS + 1), "has 4097 elements; at most 4096"),
        (np.zeros([65, 64]), "has 4160 elements; at most 4096"),
    ],
)
def test_what_cannot_be_bound_is_refused(value: Any, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why) as caught:
        Binding.of(None, {"sr": value})
    assert caught.value.code == "bad-value"
    assert caught.value.fields["input"] == "sr"
