"""Compare a compiled network's outputs with the reference, and measure the effect of weights in fewer bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.reference.comparison import STEPS, Comparison
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.quantisation import Quantisation

_METHOD = (
    "stored: the artifact; as_model: the same network with the weights and the arithmetic of its file, by default schedules. "
    "Both are compared with ONNX Runtime, which computes with the weights of the file. Errors are shares of "
    "an output's root mean square."
)

LARGEST_WIDTH = 0.1
"""A comparison within more than this share of an output's root mean square says nothing."""
_LARGEST_WIDTH_OF_STEPS = 0.3
"""The same for a network that rounds its activations, whose fixed shares are some 0.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """How a library's outputs compare with the reference, on every input set.

    Attributes:
        sets: The input sets, each with the comparison of every output; of a network of which ONNX Runtime runs parts, also of
            what goes into these and comes out.
        unforced: How an output differs if each part runs on what the compiled network gives it, not on what the reference
            did; empty if it does not.
        random_parts: Numbers of ONNX Runtime's parts whose results are random, and were not compared.
        excused: Whether what is outside of its tolerance was found to be the work of ties.
    """

    sets: tuple[tuple[InputSet, tuple[Comparison, ...]], ...]
    unforced: str = ""
    random_parts: tuple[int, ...] = ()
    excused: bool = False

    @classmethod
    def from_replies(cls, sets: Sequence[InputSet], replies: Iterable[Mapping[str, Any]]) -> ModelComparison:
        """Read a child's replies, one for each input set: ``{"comparisons": [...]}``, and ``"unforced"`` and ``"random_parts"`` if it has parts."""
        replies = list(replies)
        return cls(
            sets=tuple(
                (input_set, tuple(Comparison.from_json(comparison) for comparison in reply["comparisons"]))
                for input_set, reply in zip(sets, replies, strict=True)
            ),
            unforced=next((text for reply in replies if (text := reply.get("unforced", ""))), ""),
            random_parts=tuple(sorted({part for reply in replies for part in reply.get("random_parts", ())})),
        )

    @property
    def outputs(self) -> list[Comparison]:
        """The comparisons of all outputs on all input sets."""
        return [comparison for _, comparisons in self.sets for comparison in comparisons]

    @property
    def ok(self) -> bool:
        """Whether all outputs are within their tolerance, or excused."""
        return self.excused or all(output.ok for output in self.outputs)

    @property
    def right_sets(self) -> list[InputSet]:
        """The input sets on which all outputs are within their tolerance."""
        return [input_set for input_set, outputs in self.sets if all(output.ok for output in outputs)]

    @property
    def may_be_ties(self) -> bool:
        """Whether ties can explain all that is wrong: the network rounds, and each of its functions is right on other inputs."""
        right = {input_set.entry for input_set in self.right_sets}
        return not self.ok and all(
            input_set.rounding == STEPS and input_set.entry in right
            for input_set, outputs in self.sets
            if not all(output.ok for output in outputs)
        )

    @property
    def says_nothing(self) -> bool:
        """Whether every output may be off by more than `LARGEST_WIDTH`, on every set of inputs, or is not compared at all."""
        return all(
            output.comparable == 0
            or output.width > (_LARGEST_WIDTH_OF_STEPS if input_set.rounding == STEPS else LARGEST_WIDTH)
            for input_set, outputs in self.sets
            for output in outputs
        )

    @property
    def moved(self) -> float:
        """How far outputs move in ONNX Runtime itself: the median over outputs and sets, as a share of the root mean square."""
        return median([output.moved for output in self.outputs] or [0.0])

    @property
    def wrong_entries(self) -> frozenset[str]:
        """The library's functions of which an output is outside of its tolerance."""
        return frozenset(
            input_set.entry for input_set, outputs in self.sets if not all(output.ok for output in outputs)
        )

    def of_entry(self, entry: str) -> ModelComparison:
        """Return the part of the comparison that concerns one of the library's functions."""
        return ModelComparison(sets=tuple(pair for pair in self.sets if pair[0].entry == entry))

    @property
    def message(self) -> str:
        """What is wrong with the first wrong output; empty if `ok`."""
        return next(
            (
                f"output {clean(output.name, 80)!r}{_message_of(input_set)}: {output.message}"
                for input_set, outputs in self.sets
                for output in outputs
                if not output.ok
            ),
            "",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the largest errors, and all comparisons."""
        return {
            "ok": self.ok,
            **self.errors(),
            "input_sets": [
                {
                    **_set_json(input_set),
                    "outputs": [comparison.to_json() for comparison in comparisons],
                }
                for input_set, comparisons in self.sets
            ],
        }

    def on_samples(self) -> ModelComparison | None:
        """Return the comparison on the user's samples alone; None if there are none."""
        sets = tuple((input_set, outputs) for input_set, outputs in self.sets if input_set.sample is not None)
        return ModelComparison(sets=sets) if sets else None

    def errors(self) -> dict[str, float]:
        """Return the largest error of any output, of each kind. Relative errors are shares of a root mean square.

        An output that may differ by more than `LARGEST_WIDTH` says nothing, and is left out if others say more.
        """
        telling = [output for output in self.outputs if output.width <= LARGEST_WIDTH] or self.outputs
        return {
            kind: max((getattr(output, kind) for output in telling), default=0.0)
            for kind in ("max_abs_error", "max_rel_error", "mean_rel_error")
        }


def _set_json(input_set: InputSet) -> dict[str, Any]:
    if input_set.sample is not None:
        return {
            "kind": "sample",
            "seed": None,
            "file": input_set.sample.file,
            "sample": input_set.sample.index,
        }
    return {"kind": input_set.kind.value if input_set.kind else "", "seed": input_set.seed}


def _message_of(input_set: InputSet) -> str:
    if input_set.sample is None:
        return ""
    return f" (sample set {input_set.sample.index} of file {input_set.sample.file})"


def compare_model(
    device: DeviceRun, library: Path, names: Sequence[str], sets: Sequence[InputSet], limits: CompileLimits
) -> ModelComparison:
    """Run a compiled network on every input set and compare its outputs, which have `names` in order.

    Raises:
        RunFailed: If the network crashed or exceeded its time (`limits.model_sec` for each run).
    """
    return ModelComparison.from_replies(
        sets,
        [
            device.call(
                "check_model",
                {
                    "path": str(library),
                    "entry": input_set.entry,
                    "inputs": str(input_set.inputs),
                    "expected": str(input_set.expected),
                    "widths": None if input_set.widths is None else str(input_set.widths),
                    "names": list(names),
                    "rounding": input_set.rounding,
                    "recorded": [part.to_json() for part in input_set.parts],
                },
                timeout_sec=limits.model_sec,
            )
            for input_set in sets
        ],
    )


def rounding_of(precision: Precision, storage: Mapping[str, int]) -> str:
    """Return the rounding that outputs are compared by: that of the precision if any weight is stored in it."""
    return precision.rounding if storage.get("stored") else Precision.AS_MODEL.rounding


def compare_as_model(
    compiler: CompileSession,
    runner: DeviceRun,
    path: Path,
    names: Sequence[str],
    sets: Sequence[InputSet],
    limits: CompileLimits,
) -> ModelComparison | None:
    """Compare the outputs of the network with the weights of its file; None if it cannot be built or run.

    The compiler is a new one that stores weights as they are; it is closed once the network is built.
    """
    float32_sets = [replace(input_set, rounding="float32") for input_set in sets]
    try:
        compiler.build_model(path, {})
        compiler.close()
        return compare_model(runner, path, names, float32_sets, limits)
    except ChildClosed:
        raise
    except (ChildFailed, InvalidModelError, RunFailed):
        return None


def precision_report(
    precision: Precision,
    storage: Mapping[str, int],
    comparison: ModelComparison,
    as_model: ModelComparison | None,
    quantisation: Quantisation | None = None,
) -> dict[str, Any]:
    """Return the report's section on the format of weights and its effect on the outputs."""
    if precision is Precision.AS_MODEL and quantisation is not None:
        return _quantisation_report(quantisation)
    if precision is Precision.AS_MODEL:
        return {"name": precision.value}
    return {
        "name": precision.value,
        "weights": dict(storage),
        "method": _METHOD,
        "accuracy": {
            "stored": comparison.errors(),
            "as_model": None if as_model is None else as_model.errors(),
            "on_samples": _errors_on_samples(comparison, as_model),
        },
    }


def _quantisation_report(quantisation: Quantisation) -> dict[str, Any]:
    worst = quantisation.worst
    errors = {
        "max_abs_error": max(output.largest_abs for output in quantisation.outputs),
        "max_rel_error": max(output.largest for output in quantisation.outputs),
        "mean_rel_error": worst.mean,
    }
    return {
        "name": Precision.INT8.value,
        "weights": {
            "stored": quantisation.products,
            "kept": quantisation.kept,
            "bytes_before": quantisation.bytes_before,
            "bytes_after": quantisation.bytes_after,
        },
        "method": (
            f"The quantised network compared with the float network, both in ONNX Runtime, on {quantisation.sets} sample set"
            f"{'' if quantisation.sets == 1 else 's'}; the limit was {quantisation.max_error:g}. The artifact is compared "
            "with the quantised network, and ONNX Runtime was timed on the quantised network, too."
        ),
        "accuracy": {"stored": errors, "as_model": None, "on_samples": None},
        "quantisation": quantisation.to_json(),
    }


def _errors_on_samples(
    comparison: ModelComparison, as_model: ModelComparison | None
) -> dict[str, Any] | None:
    """Return both errors on the user's samples alone; None if there are none."""
    stored = comparison.on_samples()
    unstored = None if as_model is None else as_model.on_samples()
    if stored is None:
        return None
    return {"stored": stored.errors(), "as_model": None if unstored is None else unstored.errors()}


def storage_warnings(precision: Precision, storage: Mapping[str, int]) -> list[str]:
    """Return sentences on weights that are not stored, or not multiplied, as the precision says."""
    if precision is Precision.AS_MODEL:
        return []
    kept = storage.get("kept", 0)
    if precision.multiplies:
        if not storage.get("stored"):
            return [
                (
                    f"no product is computed in {precision.value}: no product has constant weights within its range, "
                    "or all products are too small to gain"
                )
            ]
        kinds = (
            "sums of many products that cannot be cut"
            if precision is Precision.FLOAT16
            else "depthwise, grouped"
        )
        why = f"{kinds}, small, or beyond the range of {precision.value}"
        return [f"large weights whose products stay float32: {kept} ({why})"] if kept else []
    name = precision.value.removesuffix("-weights")
    if not storage.get("stored"):
        fits = "8-bit integers times a scale" if name == "int8" else f"float32 and within the range of {name}"
        return [
            (
                f"no weight is stored as {precision.value}: no weight is large, {fits}, and in a kernel that can "
                "read this format"
            )
        ]
    if kept and precision is not Precision.INT8_WEIGHTS:
        why = f"beyond the range of {name}, or in a kernel that cannot read this format"
        return [f"large weights that stay float32: {kept} ({why})"]
    return []


def wrong_because(precision: Precision, storage: Mapping[str, int]) -> str:
    """Return a hint for the message of wrong outputs: the precision, if it may be the cause."""
    if precision is Precision.AS_MODEL or not storage.get("stored"):
        return ""
    what = "products are computed in" if precision.multiplies else "weights are stored as"
    return f" ({what} {precision.value}; precision {Precision.AS_MODEL.value} keeps them as in the model)"
