"""The function of a library that runs all shapes which have no function of their own. Needs only Python 3.11.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

if __package__:
    from tunefarm_tuning.artifact.arrays import ArtifactInputError
    from tunefarm_tuning.artifact.sizes import SizeChecks, condition_text
else:  # beside this file, in the zip
    from tunefarm_arrays import ArtifactInputError  # type: ignore[import-not-found,no-redef]
    from tunefarm_sizes import SizeChecks, condition_text  # type: ignore[import-not-found,no-redef]

Shape = tuple[int, ...]
OpenSize = int | str


class OtherShapes:
    """The shapes that the function takes. Concurrency: any thread.

    Attributes:
        entry: The function's name.
        inputs: ``{"name", "shape", "dtype"}`` of each input, in order; a name in a shape stands for an open dimension.
        outputs: The same of each output; null stands for a size that depends on those of the inputs.
        latency_sec: Seconds per inference in the shapes that matter most, measured when it was compiled.

    Args:
        section: The manifest's ``other_shapes``.
    """

    def __init__(self, section: Mapping[str, Any]) -> None:
        self.entry: str = section["entry"]
        self.inputs: list[dict[str, Any]] = section["inputs"]
        self.outputs: list[dict[str, Any]] = section["outputs"]
        self.latency_sec: float | None = section["latency_sec"]
        self._dimensions: dict[str, dict[str, Any]] = {item["name"]: item for item in section["dimensions"]}
        self._checks = SizeChecks(section.get("conditions", []))

    def check(self, shapes: Sequence[Shape]) -> None:
        """Check that the function takes inputs of these shapes.

        Raises:
            ArtifactInputError: If it does not; the message says which dimension is wrong.
        """
        sizes: dict[str, tuple[int, str]] = {}
        for spec, shape in zip(self.inputs, shapes, strict=True):
            name, wanted = spec["name"], spec["shape"]
            if len(shape) != len(wanted):
                raise ArtifactInputError(
                    f"input {name!r} has shape {list(shape)}, but the model takes {_text(wanted)}"
                )
            for axis, (size, dimension) in enumerate(zip(shape, wanted, strict=True)):
                if isinstance(dimension, int) and size != dimension:
                    raise ArtifactInputError(
                        f"dimension {axis} of input {name!r} is {size}, but the model takes {dimension}: {_text(wanted)}"
                    )
                if isinstance(dimension, int):
                    continue
                earlier, other = sizes.setdefault(dimension, (size, name))
                if earlier != size:
                    raise ArtifactInputError(
                        f"dimension {dimension!r} is {earlier} in input {other!r} and {size} in input {name!r}; it must be the same"
                    )
                if why := self._why_not(dimension, size):
                    raise ArtifactInputError(f"dimension {dimension!r} of input {name!r} is {size}: {why}")
        if why := self._checks.why_not({dimension: size for dimension, (size, _) in sizes.items()}):
            raise ArtifactInputError(why)

    def describe(self) -> dict[str, Any]:
        """Return plain values: shapes by the inputs' names, and what sizes each open dimension may have."""
        return {
            "inputs": {spec["name"]: tuple(spec["shape"]) for spec in self.inputs},
            "dimensions": {
                name: {key: item[key] for key in ("multiple", "least", "most")}
                for name, item in self._dimensions.items()
            },
            "conditions": [condition_text(condition) for condition in self._checks.conditions],
            "latency_sec": self.latency_sec,
        }

    def _why_not(self, dimension: str, size: int) -> str:
        limits = self._dimensions[dimension]
        multiple, least, most = limits["multiple"], limits["least"] or 1, limits["most"]
        if size % multiple:
            return f"the model takes multiples of {multiple}"
        if size < least:
            return f"the model takes at least {least}"
        if most is not None and size > most:
            return f"the model takes at most {most}"
        return ""


def _text(shape: Sequence[OpenSize]) -> str:
    return f"[{', '.join(map(str, shape))}]"
