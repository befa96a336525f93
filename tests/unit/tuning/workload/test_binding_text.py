"""Bound values as text."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest

from tunefarm_text.bindings import value_texts
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.binding_text import option_line, parse_values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sr=16000", 16000),
        ("a=b:0=-2.5e3", -2500.0),
        ("on=true", True),
        ("on=False", False),
        ("scales=1.5, 2", (1.5, 2)),
        ("matrix=[[1,2],[3,4]]", ((1, 2), (3, 4))),
        ("big=18446744073709551615", (1 << 64) - 1),
    ],
)
def test_values_are_read(text: str, value: Any) -> None:
    name = text.rpartition("=")[0]
    assert parse_values([text]) == {name: value}
    again = value_texts(parse_values([text]))
    assert parse_values(again) == {name: value}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["sr"], "is not of the form name=16000"),
        (["=1"], "is not of the form"),
        (["sr="], "is not of the form"),
        (["sr=fast"], "'fast' is not of the form"),
        (["sr=1,,2"], "is not of the form"),
        (["sr=" + "[" * 100_000], "is not of the form"),
        (["sr=" + "9" * 5000], "is not of the form"),
        (["sr=nan"], "is not of the form"),
        (["sr=NaN"], "not finite"),
        (["sr=1e999"], "not finite"),
        (['sr="fast"'], "is not a number"),
        (["sr=null"], "is not a number"),
        (["sr=[1,[2]]"], "rows have different lengths"),
        (["sr=" + ",".join(["1"] * 5000)], "at most 4096"),
        (["sr=1", "sr=2"], "has two values"),
    ],
)
def test_what_is_no_value_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        parse_values(texts)
    assert caught.value.code == "bad-value"
    assert len(caught.value.message) < 400


def test_arrays_and_numpy_s_numbers_are_written() -> None:
    assert value_texts({"a": np.int64(3), "b": np.array([[1.5, 2.0]]), "c": (np.float32(1), True)}) == [
        "a=3",
        "b=[[1.5,2.0]]",
        "c=[1.0,true]",
    ]


def test_options_are_one_line_for_a_shell() -> None:
    binding = Binding.of(
        {"x": (1, 3), "odd name; rm\n-rf": (2,), "s": ()}, {"sr": 16000, "on": True, "k": [1, 2]}
    )
    line = option_line(binding)
    assert line.startswith("--shape x=1,3 --shape 'odd name; rm")
    assert "\n" not in line
    assert line.endswith("--value sr=16000 --value on=true --value 'k=[1,2]'")
    assert shlex.split(line).count("--shape") == 3
