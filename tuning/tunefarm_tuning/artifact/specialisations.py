"""The specialisations of an artifact: one entry of its library for each set of input shapes. Needs only Python 3.11.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

if __package__:
    from tunefarm_tuning.artifact.arrays import ArtifactInputError
    from tunefarm_tuning.artifact.other_shapes import OtherShapes
else:  # beside this file, in the zip
    from tunefarm_arrays import ArtifactInputError  # type: ignore[import-not-found,no-redef]
    from tunefarm_other_shapes import OtherShapes  # type: ignore[import-not-found,no-redef]

Spec = Mapping[str, Any]
Shape = tuple[int, ...]

_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialisation:
    """An entry of the library.

    Attributes:
        entry: The name of the library's function.
        inputs: ``{"name", "shape", "dtype"}`` of each input, in order.
        outputs: The same of each output.
        batches: Smaller batch sizes that run here, filled up with copies of a sample; proved when the artifact was compiled.
        latency_sec: Seconds per inference, measured when it was compiled; None if unknown.
        unaligned_inputs: Whether its kernels read inputs at any multiple of an element's size; otherwise of 64 bytes.
    """

    entry: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    batches: tuple[int, ...] = ()
    latency_sec: float | None = None
    unaligned_inputs: bool = False

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the inputs, in order."""
        return tuple(tuple(spec["shape"]) for spec in self.inputs)

    @property
    def batch(self) -> int | None:
        """The first dimension of all inputs and outputs; None if they do not have the same."""
        sizes = {spec["shape"][0] if spec["shape"] else 0 for spec in (*self.inputs, *self.outputs)}
        size = sizes.pop() if len(sizes) == 1 and self.inputs else 0
        return int(size) or None


class ShapeTable:
    """Finds the specialisation for the shapes of a call. Concurrency: any thread.

    Args:
        manifest: The artifact's; an artifact of one shape lists no specialisations.
    """

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        listed = manifest.get("specialisations") or [
            {
                "entry": "main",
                "inputs": manifest["inputs"],
                "outputs": manifest["outputs"],
                "latency_sec": (manifest.get("latency_sec") or {}).get("tuned"),
            }
        ]
        self.specialisations = tuple(
            Specialisation(
                entry=item["entry"],
                inputs=tuple(item["inputs"]),
                outputs=tuple(item["outputs"]),
                batches=tuple(item.get("batches") or ()),
                latency_sec=item.get("latency_sec"),
                unaligned_inputs=bool(manifest.get("unaligned_inputs")),
            )
            for item in listed
        )
        self.main = self.specialisations[0]
        others = manifest.get("other_shapes")
        self.others = OtherShapes(others) if others else None
        # By the shapes of all inputs: the specialisation, and the rows of its batch that a call has (None: all).
        self._by_shapes: dict[tuple[Shape, ...], tuple[Specialisation, int | None]] = {}
        for specialisation in self.specialisations:
            for batch in specialisation.batches:
                padded = tuple((batch, *shape[1:]) for shape in specialisation.shapes)
                self._by_shapes.setdefault(padded, (specialisation, batch))
        for specialisation in self.specialisations:
            self._by_shapes[specialisation.shapes] = (specialisation, None)

    @property
    def is_single(self) -> bool:
        """Whether there is one shape only."""
        return len(self._by_shapes) == 1 and self.others is None

    def find(self, shapes: tuple[Shape, ...]) -> tuple[Specialisation, int | None]:
        """Return the specialisation that runs these shapes, and the size of a batch that has to be filled up (else None).

        Raises:
            ArtifactInputError: If there is none.
        """
        try:
            return self._by_shapes[shapes]
        except KeyError:
            if self.others is None:
                raise ArtifactInputError(self._unknown(shapes)) from None
            self.others.check(shapes)
            return self._among_others(self.others, shapes), None

    def _among_others(self, others: OtherShapes, shapes: tuple[Shape, ...]) -> Specialisation:
        inputs = tuple(
            {**spec, "shape": list(shape)} for spec, shape in zip(self.main.inputs, shapes, strict=True)
        )
        # Their sizes are not known: a loader that takes outputs for small copies them.
        outputs = tuple({**spec, "shape": []} for spec in self.main.outputs)
        return replace(
            self.main, entry=others.entry, inputs=inputs, outputs=outputs, batches=(), latency_sec=None
        )

    @property
    def sample_shapes(self) -> list[tuple[Shape, ...]]:
        """The shapes of the inputs without the first axis, of all specialisations that run batches."""
        shapes = [tuple(shape[1:] for shape in item.shapes) for item in self.specialisations if item.batch]
        return list(dict.fromkeys(shapes))

    def of_samples(self, shapes: tuple[Shape, ...]) -> list[Specialisation]:
        """Return the specialisations that run batches of such samples (shapes without the first axis), the smallest batch first."""
        fitting = [
            specialisation
            for specialisation in self.specialisations
            if specialisation.batch and tuple(shape[1:] for shape in specialisation.shapes) == shapes
        ]
        return sorted(fitting, key=lambda specialisation: specialisation.batch or 0)

    def open_shape(self, specs_of: str, position: int) -> list[int | str | None]:
        """Return the shape of an input or output over all specialisations: names stand for dimensions that vary.

        Args:
            specs_of: ``"inputs"`` or ``"outputs"``.
            position: Which of them.
        """
        every = [list(getattr(item, specs_of)[position]["shape"]) for item in self.specialisations]
        first = every[0]
        if self.others is not None:
            listed = getattr(self.others, specs_of)[position]
            return [
                f"{listed['name']}_dim_{axis}" if size is None else size
                for axis, size in enumerate(listed["shape"])
            ]
        if any(len(shape) != len(first) for shape in every):
            return list(first)
        name = getattr(self.main, specs_of)[position]["name"]
        batch_varies = any(item.batches for item in self.specialisations)
        dims: list[int | str | None] = []
        for axis, size in enumerate(first):
            varies = len({shape[axis] for shape in every}) > 1 or (axis == 0 and batch_varies)
            dims.append(f"{name}_dim_{axis}" if varies else size)
        return dims

    def as_rows(self) -> list[dict[str, Any]]:
        """Return the specialisations as plain values: shapes by input name, filled-up batches, seconds per inference."""
        return [
            {
                "inputs": {spec["name"]: tuple(spec["shape"]) for spec in item.inputs},
                "outputs": {spec["name"]: tuple(spec["shape"]) for spec in item.outputs},
                "batches": item.batches,
                "latency_sec": item.latency_sec,
            }
            for item in self.specialisations
        ]

    def _unknown(self, shapes: tuple[Shape, ...]) -> str:
        names = [spec["name"] for spec in self.main.inputs]
        given = _listed(names, shapes)
        if self.is_single:
            return (
                f"the inputs have the shapes {given}, but the model takes {_listed(names, self.main.shapes)}"
            )
        nearest = min(self._by_shapes, key=lambda known: _distance(known, shapes))
        listed = "; ".join(self._texts(names))
        return (
            f"no code in this artifact is for the shapes {given}. The nearest is {_listed(names, nearest)}. It has: {listed}. "
            "Bring the inputs to one of these shapes, or tune the model for this shape as well"
        )

    def _texts(self, names: Sequence[str]) -> Iterator[str]:
        for number, item in enumerate(self.specialisations):
            if number == _LISTED:
                yield f"and {len(self.specialisations) - _LISTED} more (model.shapes lists them)"
                return
            batches = f" (also batch {', '.join(map(str, item.batches))})" if item.batches else ""
            yield _listed(names, item.shapes) + batches


def _listed(names: Sequence[str], shapes: Sequence[Shape]) -> str:
    return ", ".join(f"{name!r} {list(shape)}" for name, shape in zip(names, shapes, strict=False))


def _distance(known: Sequence[Shape], shapes: Sequence[Shape]) -> float:
    """Return how far shapes are from each other: doublings of sizes; another number of dimensions is farther than any size."""
    distance = 0.0
    for ours, theirs in zip(known, shapes, strict=False):
        if len(ours) != len(theirs):
            distance += 1000.0
            continue
        distance += sum(
            abs(math.log2(max(a, 1)) - math.log2(max(b, 1))) for a, b in zip(ours, theirs, strict=True)
        )
    return distance
