"""Conditions on open sizes that the inputs' own names set: a mask of ``past_sequence_length + 1``, or one over a cache and new words.

The nodes of a network often take other sizes, too, with results that mean nothing, or ONNX Runtime refuses them. With these
conditions, such sizes are neither compared nor taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunefarm_tuning.artifact.sizes import SizeChecks, is_condition
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.proposals.relations import formula_of, totals
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShape
from tunefarm_tuning.workload.task import TensorSpec


def named_sums(shapes: Sequence[OpenShape], inputs: Sequence[tuple[TensorSpec, ...]]) -> list[dict[str, Any]]:
    """Return a condition for each dimension that others add up to, as `artifact.sizes.SizeChecks` takes it.

    Args:
        shapes: Of the inputs.
        inputs: The inputs in each set of shapes that was bound; a condition that does not hold in all of them is left out.
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
    sums = totals(named, {spec.name for spec in specs if spec.dtype.startswith("int")})
    conditions: dict[str, dict[str, Any]] = {}
    for spec in specs:
        for name in named[spec.name]:
            of = formula_of(name) if isinstance(name, str) else None
            if of is None and name in sums:
                of = ["+", *sums[name]]
            condition = {"kind": "equal", "size": name, "of": of, "node": f"'{clean(spec.name, 60)}' (input)"}
            if isinstance(name, str) and is_condition(condition, every[0]):
                checks = SizeChecks([condition])
                if not any(checks.why_not(sizes) for sizes in every):
                    conditions.setdefault(name, condition)
    return list(conditions.values())
