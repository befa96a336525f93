"""Sums of open sizes that the inputs' own names tell: a mask of ``past_sequence_length + 1``, or one over a cache and new words.

The nodes of a network often take other sizes, too, with results that mean nothing, or ONNX Runtime refuses them. What a dimension's
name computes is a condition: other sizes are not taken. What a mask is as long as is a guess: other sizes are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tunefarm_tuning.artifact.sizes import SizeChecks, is_condition
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.proposals.relations import formula_of, totals
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShape
from tunefarm_tuning.workload.task import TensorSpec

Conditions = list[dict[str, Any]]


def named_sums(
    shapes: Sequence[OpenShape], inputs: Sequence[tuple[TensorSpec, ...]]
) -> tuple[Conditions, Conditions]:
    """Return a condition for each dimension that others add up to, as `artifact.sizes.SizeChecks` takes it.

    Args:
        shapes: Of the inputs.
        inputs: The inputs in each set of shapes that was bound; a condition that does not hold in all of them is left out.

    Returns:
        Those that names compute, and those that are a guess from what masks are for.
    """
    specs = inputs[0]
    named = {
        spec.name: [size.name if isinstance(size, OpenDimension) else size for size in shape]
        for spec, shape in zip(specs, shapes, strict=True)
    }
    every = [
        {
            name: size
            for spec in bound
            for name, size in zip(named[spec.name], spec.shape, strict=True)
            if isinstance(name, str)
        }
        for bound in inputs
    ]
    owners = {
        name: spec.name for spec in reversed(specs) for name in named[spec.name] if isinstance(name, str)
    }
    guesses = totals(named, {spec.name for spec in specs if spec.dtype.startswith("int")})
    computed = {name: formula for name in owners if (formula := formula_of(name)) is not None}
    guessed = {name: ["+", *guesses[name]] for name in owners if name in guesses and name not in computed}
    return _conditions(computed, owners, every), _conditions(guessed, owners, every)


def _conditions(
    sums: Mapping[str, Any], owners: Mapping[str, str], every: Sequence[Mapping[str, int]]
) -> Conditions:
    """Return the conditions that hold in all sets of sizes."""
    conditions = [
        {"kind": "equal", "size": name, "of": of, "node": f"'{clean(owners[name], 60)}' (input)"}
        for name, of in sums.items()
    ]
    return [
        condition
        for condition in conditions
        if is_condition(condition, every[0])
        and not any(SizeChecks([condition]).why_not(sizes) for sizes in every)
    ]
