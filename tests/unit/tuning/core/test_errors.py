"""The error tree: every class crosses a process border as JSON."""

from __future__ import annotations

import json

import pytest

from tunefarm_tuning.core import errors
from tunefarm_tuning.core.errors import (
    InvalidModelError,
    InvariantError,
    TunefarmError,
    error_from_json,
    reason_of,
)

KINDS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TunefarmError)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_json(kind: type[TunefarmError]) -> None:
    error = kind("what and why", code="some-code", operator="Loop", limit_bytes=3)
    again = error_from_json(json.loads(json.dumps(error.to_json())))
    assert type(again) is kind
    assert (again.message, again.code, again.fields) == (error.message, error.code, error.fields)
    assert str(again) == "what and why"


@pytest.mark.parametrize("kind", KINDS)
def test_each_class_has_a_code_of_its_own(kind: type[TunefarmError]) -> None:
    assert kind("x").code == kind.default_code
    assert kind.default_code == kind.default_code.lower()


def test_an_unknown_kind_is_our_bug() -> None:
    assert type(error_from_json({"kind": "Strange", "message": "m"})) is InvariantError
    assert type(error_from_json({})) is InvariantError


def test_the_tree_is_the_one_drawn() -> None:
    drawn = errors.__doc__ or ""
    assert all(kind.__name__ in drawn for kind in KINDS)
    assert issubclass(InvalidModelError, errors.InvalidInputError)


def test_a_reason_names_the_kind_of_an_error_that_is_not_ours() -> None:
    assert reason_of(InvalidModelError("it has no outputs")) == "it has no outputs"
    assert reason_of(ZeroDivisionError("division by zero")) == "ZeroDivisionError: division by zero"
