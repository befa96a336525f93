from __future__ import annotations

import numpy as np

from tunefarm_text.bindings import short_value, value_texts


def test_values_as_the_api_takes_them() -> None:
    assert value_texts({"sr": 16000, "mean": np.array([1.5, 2.0])}) == ["sr=16000", "mean=[1.5,2.0]"]


def test_values_as_people_see_them() -> None:
    assert [short_value(value) for value in (16000, True, [1.5, 2.0])] == ["16000", "true", "[1.5, 2.0]"]
    long = short_value(list(range(4096)))
    assert (len(long), long[:7], long[-1]) == (80, "[0, 1, ", "…")
