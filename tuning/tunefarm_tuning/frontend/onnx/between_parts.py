"""What is expected of the compiled half of a network of which ONNX Runtime runs parts, and how far it may be from that.

The half is run in all ways of `reference.variants`, each part replaced by the results that it has in the reference. So what a part sorts or
selects is the same in all runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes
from tunefarm_tuning.frontend.onnx.reference.runs import Runs
from tunefarm_tuning.frontend.onnx.reference.segments import Network
from tunefarm_tuning.frontend.onnx.reference.variants import Variants
from tunefarm_tuning.reference.widths import Width, save_widths
from tunefarm_tuning.workload.task import TensorSpec

_Expected = dict[str, tuple[NDArray[Any], Width]]
"""By name of a value that the compiled half computes: what it shall be, and how far it may be from that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRun:
    """A run of the whole network without optimisations.

    Attributes:
        values: The outputs, in order, then what parts take and return, then the inputs.
        seconds: How long it took.
    """

    values: Mapping[str, NDArray[Any]]
    seconds: float


def expect_between_parts(
    network: BoundNetwork,
    params: Mapping[str, Any],
    sets: Sequence[Mapping[str, Any]],
    plain_runs: Sequence[PlainRun],
) -> Runs | None:
    """Write what is expected of the compiled half, and the widths of its outputs and of what parts take.

    What parts take stays that of the plain run, which has their results. It is well within the widths: it is one of the runs.

    Args:
        network: The network; what crosses the border of a part is an output of it, too.
        params: Of `reference_child.make_reference`.
        sets: Those that were run.
        plain_runs: The run on each.

    Returns:
        In which ways the half was run; None if it cannot be cut out, and nothing was written.
    """
    until = time.monotonic() + params["budget_sec"]
    held = [name for part in params["parts"] for name in part["outputs"]]
    report: Runs | None = None
    by_set: list[_Expected] = []
    try:
        segments = Network(network.model, network.inputs)
        for number, run in enumerate(plain_runs):
            budget_sec = (until - time.monotonic()) / (len(plain_runs) - number)
            probes = params["probes"] and number == 0
            expected, more = _expected(
                segments, held, run, {**params, "budget_sec": budget_sec, "probes": probes}
            )
            by_set.append(expected)
            report = more if report is None else report.joined(more)
    except InvalidModelError:
        return None
    for input_set, run, expected in zip(sets, plain_runs, by_set, strict=True):
        outputs = load_arrays(Path(input_set["outputs"]))
        names = list(run.values)[: len(outputs)]
        values = [
            expected[name][0] if name in expected else output
            for name, output in zip(names, outputs, strict=True)
        ]
        save_arrays(Path(input_set["outputs"]), values)
        _save_widths(input_set["widths"], names, expected)
        for part, files in zip(params["parts"], input_set["parts"], strict=True):
            _save_widths(files["widths"], part["inputs"], expected)
    return report


def _expected(
    segments: Network, held: Sequence[str], run: PlainRun, params: Mapping[str, Any]
) -> tuple[_Expected, Runs]:
    """Run the half on one set of inputs."""
    for name in held:
        segments.learn(name, run.values[name])
    outputs = [value.name for value in segments.model.graph.output]
    wanted = [name for name in outputs if name not in {*held, *segments.inputs}]
    half = segments.cut(held, wanted)
    feeds = [run.values[name] for name in half.inputs]
    specs = [
        TensorSpec(name=name, shape=array.shape, dtype=str(array.dtype))
        for name, array in zip(half.inputs, feeds, strict=True)
    ]
    variants = Variants(
        onnx_bytes(half.model),
        half.model,
        specs,
        **{name: params[name] for name in ("threads", "budget_sec", "probes", "narrow")},
    )
    variants.add(feeds, [run.values[name] for name in wanted], run.seconds)
    (computed,) = variants.run()
    expected = zip(wanted, zip(computed.outputs, computed.widths, strict=True), strict=True)
    return dict(expected), variants.report


def _save_widths(file: str, names: Sequence[str], expected: _Expected) -> None:
    save_widths(Path(file), [expected[name][1] if name in expected else None for name in names])
