"""Check a network segment by segment: cut at tensors inside it, each segment on the reference's own values.

It locates a fault of a refused network, and stands in for the comparison of outputs where that says little: an output that is
saturated, or moves too far in ONNX Runtime itself, hides what happens before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.compiler.model_comparison import compare_model
from tunefarm_tuning.compiler.phases.load import LoadedModel, OpenCompiler
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_run import RunFailed
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.reference.comparison import TIES, Comparison
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.runtime_part import OpenSpec
from tunefarm_tuning.workload.task import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongSegment:
    """The first segment whose result departs from the reference.

    Attributes:
        node: Name of the ONNX node that ends it: untrusted text.
        operator: That node's operator.
        tensor: The tensor that departs.
        comparison: How far.
        alone: Whether the segment is that node alone; else the node and some before it.
    """

    node: str
    operator: str
    tensor: str
    comparison: Comparison
    alone: bool

    @property
    def message(self) -> str:
        """A sentence for people."""
        node = (
            f"node {clean(self.node, 80)!r}"
            if self.node
            else f"the node of tensor {clean(self.tensor, 80)!r}"
        )
        until = "" if self.alone else ", or a node shortly before it"
        return f"the first segment that differs is {node} ({clean(self.operator, 40)}){until}: {self.comparison.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsCheck:
    """The result of checking a network segment by segment.

    Attributes:
        count: How many segments were compared.
        wrong: The first wrong segment; None if all are right.
        departing: The tensors that end wrong segments.
        not_checked: Why nothing was compared; empty if something was.
    """

    count: int = 0
    wrong: WrongSegment | None = None
    departing: frozenset[str] = frozenset()
    not_checked: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the report's entry, in which segments are still called parts."""
        wrong = self.wrong
        return {
            "parts": self.count,
            "not_checked": self.not_checked or None,
            "wrong": None
            if wrong is None
            else {
                "node": wrong.node,
                "operator": wrong.operator,
                "tensor": wrong.tensor,
                "alone": wrong.alone,
                "comparison": wrong.comparison.to_json(),
            },
        }


def check_segments(
    request: CompileRequest,
    loaded: LoadedModel,
    open_compiler: OpenCompiler,
    input_set: InputSet,
    *,
    unscheduled: bool = False,
    among: Collection[str] | None = None,
) -> SegmentsCheck:
    """Compare every segment of the network, built without records, on one set of inputs; narrow the first wrong one to a node.

    What cannot be built or run, or would take longer than the compile has, is not checked.

    Args:
        request: The compile.
        loaded: Its children.
        open_compiler: Opens further compilers.
        input_set: Whose values the segments are fed with.
        unscheduled: Build with unscheduled loops.
        among: The tensors of segments that may be wrong; None for all.
    """
    if request.model.parts:
        return SegmentsCheck(not_checked="ONNX Runtime runs parts of the network itself")
    try:
        segments, compared = _compare(
            request, loaded, open_compiler, input_set, None, unscheduled=unscheduled
        )
        departing = {
            segment["tensor"]: number
            for number, (segment, comparison) in enumerate(zip(segments, compared, strict=True))
            if not comparison.ok and (among is None or segment["tensor"] in among)
        }
        if not departing:
            return SegmentsCheck(count=len(compared))
        position = min(departing.values())
    except ChildClosed:
        raise
    except (ChildFailed, InvalidModelError, RunFailed) as error:
        return SegmentsCheck(not_checked=error.message)
    wrong = _wrong_segment(segments[position], compared[position], alone=False)
    try:
        inner, inner_compared = _compare(
            request, loaded, open_compiler, input_set, wrong.tensor, unscheduled=unscheduled
        )
        inner_position = _first_wrong(inner_compared)
        if inner_position is not None:
            wrong = _wrong_segment(inner[inner_position], inner_compared[inner_position], alone=True)
    except _NothingToCutError:
        wrong = _wrong_segment(segments[position], compared[position], alone=True)
    except ChildClosed:
        raise
    except (ChildFailed, InvalidModelError, RunFailed):
        pass
    return SegmentsCheck(count=len(compared), wrong=wrong, departing=frozenset(departing))


class _NothingToCutError(InvalidModelError):
    default_code = "nothing-to-cut"


def _compare(
    request: CompileRequest,
    loaded: LoadedModel,
    open_compiler: OpenCompiler,
    input_set: InputSet,
    within: str | None,
    *,
    unscheduled: bool,
) -> tuple[Sequence[Mapping[str, str]], Sequence[Comparison]]:
    whole_sec = request.limits.whole_sec
    if whole_sec is not None and request.progress.elapsed_sec > whole_sec / 2:
        raise InvalidModelError("the compile has no time left for it", code="compile-timeout")
    name = "segments" if within is None else "segments-within"
    number = next(n for n, entry in enumerate(loaded.info.entries) if entry.name == input_set.entry)
    reply = loaded.references.of(number).make_segments(input_set, within, name)
    if reply["segments"] is None:
        raise _NothingToCutError("the network has no tensors to cut it at")
    outputs = tuple(OpenSpec.from_json(spec) for spec in reply["outputs"])
    model = Model(
        path=Path(reply["files"]["model"]),
        sha256="",
        inputs=tuple(TensorSpec.from_json(spec) for spec in reply["inputs"]),
        outputs=outputs,
        operators=(),
        opset=request.model.opset,
        num_params=0,
    )
    files = {key: Path(path) for key, path in reply["files"].items()}
    cut_set = InputSet(
        kind=input_set.kind,
        seed=input_set.seed,
        inputs=files["inputs"],
        expected=files["outputs"],
        widths=files["widths"],
        rounding=TIES,
    )
    library = request.folder / f"{name}.so"
    with open_compiler(Precision.AS_MODEL, model=model) as compiler:
        compiler.build_model(library, {}, default_schedules=not unscheduled)
    comparison = compare_model(
        loaded.runner, library, [spec.name for spec in outputs], [cut_set], request.limits
    )
    return reply["segments"], comparison.outputs


def _first_wrong(compared: Sequence[Comparison]) -> int | None:
    return next((position for position, comparison in enumerate(compared) if not comparison.ok), None)


def _wrong_segment(segment: Mapping[str, str], comparison: Comparison, *, alone: bool) -> WrongSegment:
    return WrongSegment(
        node=segment["node"],
        operator=segment["operator"],
        tensor=segment["tensor"],
        comparison=comparison,
        alone=alone,
    )
