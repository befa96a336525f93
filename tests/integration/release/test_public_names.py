"""The public names of the previous release: each is still there, and can be used as before."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest
from repository import ROOT

NAMES = json.loads((ROOT / "tests/release_7936aea/public_names.json").read_text(encoding="utf-8"))

OLD_NAMES = {"tail_products": "rest_extents"}
"""Parameters of `Knob` and `Knob.tile` that are taken under both names."""


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, names in NAMES.items() for name in names]
)
def test_a_public_name_can_be_used_as_before(package: str, name: str) -> None:
    value, old = public_value(package, name), NAMES[package][name]
    if "call" in old:
        assert list(refusals(old["call"], inspect.signature(value))) == []
    if "public" not in old:
        return  # a function or a constant
    if "members" in old:
        assert {member.name: member.value for member in value}.items() >= old["members"].items()
    assert set(old.get("fields", ())) <= attributes(value)
    for attribute, call in old["public"].items():
        assert attribute in attributes(value), f"{name}.{attribute}"
        present = inspect.getattr_static(value, attribute, None)
        bound = isinstance(present, (staticmethod, classmethod))
        if call is None:
            assert not bound, f"{name}.{attribute} was not called"
            assert not inspect.isfunction(present), f"{name}.{attribute} was not called"
        else:
            signature = inspect.signature(getattr(value, attribute))
            if not bound:
                signature = signature.replace(parameters=list(signature.parameters.values())[1:])
            assert list(refusals(call, signature)) == [], f"{name}.{attribute}"


def public_value(package: str, name: str) -> Any:
    """Return what a module has under a name, or the class of what a client has: `client.jobs`."""
    home, _, client = package.rpartition(".")
    if client not in ("Client", "AsyncClient"):
        return getattr(importlib.import_module(package), name)
    return type(getattr(getattr(importlib.import_module(home), client)("http://127.0.0.1:9", "key"), name))


def attributes(value: Any) -> set[str]:
    """Return the names that an object of a class has."""
    fields = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    return {*fields, *(name for base in value.__mro__ for name in vars(base))}


def refusals(old: list[str], signature: inspect.Signature) -> Iterator[str]:
    """Yield why a call that the old parameters allowed is refused, or means another thing."""
    names = [name for name in old if not name.startswith("*")]
    keywords = old[old.index("*") + 1 :] if "*" in old else []
    positional = [name for name in names if name not in keywords]
    calls = {
        "all by position": (positional, [name for name in keywords if not name.startswith("*")]),
        "all by name": ([], names),
        "the least by position": (
            [name for name in positional if not name.endswith("?")],
            [name for name in keywords if not name.endswith(("?",)) and not name.startswith("*")],
        ),
    }
    for how, (by_position, by_name) in calls.items():
        given = [name.removesuffix("?") for name in by_position]
        named = {name.removesuffix("?"): name.removesuffix("?") for name in by_name}
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            yield f"{how}: {error}"
            continue
        variadic = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        ]
        for name, argument in bound.arguments.items():
            if name not in variadic and argument not in (name, OLD_NAMES.get(name)):
                yield f"{how}: {argument} is taken for {name}"


def test_deprecated_names_mean_what_they_did() -> None:
    import numpy as np

    from tunefarm_tuning import ConfigSpace, Knob, Outcome
    from tunefarm_tuning.search.trial_outcome import TrialOutcome
    from tunefarm_tuning.space.config_space import Sketch
    from tunefarm_tuning.tuner.base import TrialResult

    knob = Knob.tile("i", 5, 2, 5, rest_extents=(6,))
    assert knob == Knob.tile("i", 5, 2, 5, (6,))
    assert knob.rest_extents == knob.tail_products == (6,)
    assert knob == Knob(name="i", kind=knob.kind, extent=5, parts=2, max_innermost=5, rest_extents=(6,))
    assert dataclasses.replace(knob, tail_products=()) == Knob.tile("i", 5, 2, 5)
    assert dataclasses.replace(Knob.tile("i", 5, 2, 5), rest_extents=(6,)) == knob
    space = ConfigSpace([Sketch((knob, Knob.categorical("unroll", (0, 16, 64))))])
    rng = np.random.default_rng(1)
    first, second = space.sample(rng, 2)
    assert sum(a != b for a, b in zip(space.mutate(first, rng).decisions, first.decisions, strict=True)) == 1
    child = space.crossover(one=first, other=second, rng=rng)
    assert all(
        c in (a, b) for c, a, b in zip(child.decisions, first.decisions, second.decisions, strict=True)
    )
    blamed = {outcome for outcome in Outcome if outcome.counts_against_candidate}
    assert blamed == set(Outcome) - {Outcome.OK, Outcome.INFRASTRUCTURE_ERROR}
    trial = TrialOutcome(asked=first, config=second, outcome=Outcome.OK, samples_sec=(3.0, 1.0, 2.0))
    assert trial.to_result() == TrialResult(asked=first, config=second, outcome=Outcome.OK, cost_sec=2.0)
