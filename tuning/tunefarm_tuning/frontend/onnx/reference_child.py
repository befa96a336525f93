"""Child process of `reference.onnx_runtime.Reference`: ONNX Runtime, as the reference for outputs and as the baseline for latency.

Results are checked against it in float64 where it can; without graph optimisations where it cannot, since optimised it can
itself be off by half a percent (packed 8-bit weights). It is timed with its best settings.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray

from tunefarm_convert import FileFormat, file_format
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError, InvariantError
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.frontend.onnx.between_parts import PlainRun, expect_between_parts
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork, bound_network, runnable_bytes
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes
from tunefarm_tuning.frontend.onnx.reference.exact_products import multiply_exactly
from tunefarm_tuning.frontend.onnx.reference.rounding import rounds_values
from tunefarm_tuning.frontend.onnx.reference.runs import Runs
from tunefarm_tuning.frontend.onnx.reference.runtime import open_session, run_session
from tunefarm_tuning.frontend.onnx.reference.segments import Network, Rounding
from tunefarm_tuning.frontend.onnx.reference.telling_inputs import run_on_drawn
from tunefarm_tuning.frontend.onnx.reference.variants import Expected, Variants
from tunefarm_tuning.frontend.onnx.reference.vocabulary import index_limits
from tunefarm_tuning.measure.timing_blocks import warm_call_sec, watched_sample
from tunefarm_tuning.reference.comparison import STEPS, width_with_shares
from tunefarm_tuning.reference.random_inputs import InputKind
from tunefarm_tuning.reference.widths import save_widths
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.task import TensorSpec

_timed: tuple[dict[str, Any], onnxruntime.InferenceSession, dict[str, NDArray[Any]]] | None = None
"""What was asked for, the model with the best settings, and its inputs."""
_LEAST_SETS = _LEAST_SEGMENTS = 2
_SLOW_SEC = 10.0
"""A network that takes longer per inference is run on the first sets of inputs alone."""


@span("reference outputs", SpanKind.REFERENCE)
def make_reference(params: dict[str, Any]) -> dict[str, Any]:
    """Run the model on random inputs; write inputs, expected outputs, and how far outputs may be from those.

    Args:
        params: ``path``, ``binding``, ``threads``, ``budget_sec`` (for all runs but the plain ones); ``probes``: whether to find out how
            well the comparison notices faults; ``narrow``: the dtype that the compile rounds the factors of products to, or null;
            ``parts``: of each part that ONNX Runtime runs in the artifact, the names that it takes (``inputs``) and gives
            (``outputs``); and ``sets``: of
            ``{"kind", "seed", "inputs", "outputs", "widths", "parts"}``, all but the first two being files to write, ``parts``
            ``{"inputs", "outputs", "widths"}`` of each part. A set of kind null is a sample set of the user's: its ``inputs`` are there, and
            ``seed`` is its index.

    Returns:
        ``outputs``: their names; ``integers``: how integer inputs were drawn: ``"random"``, ``"zero"``, ``"one"``;
        ``rounds``: whether the network rounds activations to integers; ``bfloat16``: whether it computes in bfloat16. Of the latter
        no widths are written, and of the former only if the fixed shares are too small for ONNX Runtime's own runs. ``made``: how
        many of the sets were made; ``random_fails``: why the model was run on sample sets alone, or ``""``. ``runs``:
        `reference.runs.Runs`, null without widths; ``hurried``: whether there was no time for all of them.

    Raises:
        InvalidModelError: ``"reference-failed"``: ONNX Runtime cannot run the model on such inputs.
        InvalidInputError: ``"samples-failed"``: it cannot run it on a sample set.
    """
    network = _network(params)
    model, specs = network.model, network.inputs
    multiply_exactly(model)
    rounds, bfloat16 = rounds_values(model.graph), uses_bfloat16(model.graph)
    count = len(model.graph.output)
    _add_outputs(model.graph, [name for part in params["parts"] for end in part.values() for name in end])
    source = runnable_bytes(model)
    session = open_session(source, params["threads"], optimised=False)
    variants = Variants(
        source,
        model,
        specs,
        threads=params["threads"],
        budget_sec=params["budget_sec"],
        probes=params["probes"],
        narrow=params["narrow"],
    )
    output_names = [output.name for output in session.get_outputs()]
    integers, limits, random_fails = "random", index_limits(model.graph), ""
    sets: list[dict[str, Any]] = []
    plain_runs: list[PlainRun] = []
    for input_set in params["sets"]:
        started = time.monotonic()
        if input_set["kind"] is None:
            arrays = load_arrays(input_set["inputs"])
            outputs = _run_sample(session, specs, arrays, input_set["seed"])
        else:
            kind = InputKind(input_set["kind"])
            try:
                drawn, arrays, outputs = run_on_drawn(session, specs, input_set["seed"], kind, limits)
            except InvalidModelError as error:
                if not any(done["kind"] is None for done in sets):
                    raise
                random_fails = error.message
                break
            integers = drawn if drawn != "random" else integers
            save_arrays(Path(input_set["inputs"]), arrays)
        seconds = time.monotonic() - started
        save_arrays(Path(input_set["outputs"]), outputs[:count])
        values = dict(zip([*output_names, *(spec.name for spec in specs)], [*outputs, *arrays], strict=True))
        plain_runs.append(PlainRun(values=values, seconds=seconds))
        for part, files in zip(params["parts"], input_set["parts"], strict=True):
            for end in ("inputs", "outputs"):
                save_arrays(Path(files[end]), [values[name] for name in part[end]])
        variants.add(arrays, outputs, seconds)
        sets.append(input_set)
        if len(sets) >= _LEAST_SETS and seconds > _SLOW_SEC:
            break
    report: Runs | None = None
    if params["parts"]:
        if not (bfloat16 or rounds):
            report = expect_between_parts(network, params, sets, plain_runs)
    elif not bfloat16 and (every := variants.run_steps() if rounds else variants.run()) is not None:
        report = variants.report
        for input_set, expected in zip(sets, every, strict=True):
            save_arrays(Path(input_set["outputs"]), expected.outputs)
            save_widths(Path(input_set["widths"]), expected.widths)
    return {
        "outputs": output_names[:count],
        "integers": integers,
        "rounds": rounds,
        "bfloat16": bfloat16,
        "made": len(sets),
        "random_fails": random_fails,
        "runs": None if report is None else report.to_json(),
        "hurried": (report or variants.report).hurried,
    }


def _add_outputs(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    """Make a network return some of its inner values, too."""
    there = {value.name for value in (*graph.output, *graph.input)}
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in there)


@span("reference outputs of samples", SpanKind.REFERENCE)
def run_samples(params: dict[str, Any]) -> None:
    """Run the model, optimisations off, on each sample set: ``{"path", "binding", "feeds" (files), "numbers"}``.

    Raises:
        InvalidInputError: ``"samples-failed"``: ONNX Runtime cannot run the model on one of them.
        InvalidModelError: ``"reference-failed"``: it cannot load the model.
    """
    network = _network(params)
    session = open_session(runnable_bytes(network.model), 1, optimised=False)
    for number, feed in zip(params["numbers"], params["feeds"], strict=True):
        _run_sample(session, network.inputs, load_arrays(feed), number)


def _run_sample(
    session: onnxruntime.InferenceSession,
    specs: Sequence[TensorSpec],
    arrays: list[NDArray[Any]],
    number: int,
) -> list[NDArray[Any]]:
    """Return the outputs on a sample set.

    Raises:
        InvalidInputError: ``"samples-failed"``.
    """
    try:
        return _run(session, specs, arrays)
    except InvalidModelError as error:
        raise InvalidInputError(
            f"the network does not run on sample set {number}: {error.message}",
            code="samples-failed",
            set=number,
        ) from error


def make_segments(params: dict[str, Any]) -> dict[str, Any]:
    """Cut the model into segments; write the cut model, the reference's values as its inputs, expected outputs and widths.

    Args:
        params: ``path``, ``binding``, ``threads``, ``budget_sec`` as in `make_reference`; ``feeds``: the inputs, a file; ``within``:
            the tensor of the segment to cut further, null for the whole model; ``to``: the files to write: ``{"model", "inputs",
            "outputs", "widths"}``.

    Returns:
        ``inputs``, ``outputs``: specs of the cut model; ``segments``: by output, ``{"tensor", "node", "operator"}``; null if there is nothing
        to cut, or the model computes in bfloat16.

    Raises:
        InvalidModelError: ``"reference-failed"``.
    """
    bound = _network(params)
    if uses_bfloat16(bound.model.graph):
        return {"segments": None}
    network = Network(bound.model, bound.inputs)
    given = dict(zip([spec.name for spec in bound.inputs], load_arrays(params["feeds"]), strict=True))

    def values_of(names: Sequence[str]) -> dict[str, NDArray[Any]]:
        model = network.with_outputs(names)
        multiply_exactly(model)
        session = open_session(onnx_bytes(model), params["threads"], optimised=False)
        return dict(zip(names, run_session(session, list(given), list(given.values())), strict=True))

    if untyped := network.untyped():
        for name, array in values_of(untyped).items():
            network.learn(name, array)
    cuts = network.first_cuts()
    outputs = [*cuts, *(value.name for value in network.model.graph.output)]
    if params["within"] is not None:
        inner = network.inner_cuts(params["within"], cuts)
        cuts, outputs = [*inner, *cuts], [*inner, params["within"]]
    if not cuts or len(outputs) < _LEAST_SEGMENTS:
        return {"segments": None}
    cut = network.cut(cuts, outputs)
    values = values_of([name for name in cut.inputs if name not in network.inputs]) | given
    feeds = [values[name] for name in cut.inputs]
    specs = [
        TensorSpec(name=name, shape=array.shape, dtype=str(array.dtype))
        for name, array in zip(cut.inputs, feeds, strict=True)
    ]
    files = params["to"]
    Path(files["model"]).write_bytes(onnx_bytes(cut.model))
    roundings = [network.rounding_within(segment.tensor, cuts) for segment in cut.segments]
    expected = _expected_of_segments(cut.model, specs, feeds, roundings, params)
    save_arrays(Path(files["inputs"]), feeds)
    save_arrays(Path(files["outputs"]), expected.outputs)
    save_widths(Path(files["widths"]), expected.widths)
    return {
        "inputs": [spec.to_json() for spec in specs],
        "outputs": [
            {"name": segment.tensor, "shape": list(array.shape), "dtype": str(array.dtype)}
            for segment, array in zip(cut.segments, expected.outputs, strict=True)
        ],
        "segments": [asdict(segment) for segment in cut.segments],
    }


def _expected_of_segments(
    model: onnx.ModelProto,
    specs: Sequence[TensorSpec],
    feeds: list[NDArray[Any]],
    roundings: Sequence[Rounding],
    params: dict[str, Any],
) -> Expected:
    """Return what the segments of a cut model give, by `roundings` of each; the model is changed."""
    multiply_exactly(model)
    source = onnx_bytes(model)
    session = open_session(source, params["threads"], optimised=False)
    started = time.monotonic()
    plain = _run(session, specs, feeds)
    seconds = time.monotonic() - started

    def variants() -> Variants:
        ways = Variants(
            source, model, specs, threads=params["threads"], budget_sec=params["budget_sec"], probes=False
        )
        ways.add(feeds, plain, seconds)
        return ways

    (expected,) = variants().run()
    if all(rounding is Rounding.AT_THE_END for rounding in roundings):
        return expected
    outputs, widths = list(expected.outputs), list(expected.widths)
    ways = variants()
    steps = ways.run_steps()
    for position, rounding in enumerate(roundings):
        if rounding is Rounding.AT_THE_END:
            continue
        outputs[position] = plain[position]
        if rounding is Rounding.FED_BACK:
            widths[position] = ways.width_of_feedback(position)
        else:
            measured = None if steps is None else steps[0].widths[position]
            widths[position] = width_with_shares(plain[position], measured, STEPS)
    return Expected(outputs=outputs, widths=widths)


def run_once(params: dict[str, Any]) -> None:
    """Run the model, optimisations off, on inputs of a file: ``{"path", "binding", "feeds", "outputs"}``, the last two being files.

    Raises:
        InvalidModelError: ``"reference-failed"``.
    """
    network = _network(params)
    session = _session(network.model, 1, timed=False)
    save_arrays(Path(params["outputs"]), _run(session, network.inputs, load_arrays(params["feeds"])))


def write_network(params: dict[str, Any]) -> bool:
    """Write the model as ONNX Runtime is timed with it, for other runtimes: ``{"path", "binding", "to" (a file)}``.

    Returns:
        Whether it was written; a TFLite file is not, since they read it themselves.

    Raises:
        InvalidModelError: too-large.
    """
    if file_format(Path(params["path"]).read_bytes()) is FileFormat.TFLITE:
        return False
    Path(params["to"]).write_bytes(runnable_bytes(_network(params).model, rounds=False))
    return True


def prepare_timed(params: dict[str, Any]) -> None:
    """Load the model with the best settings, so that `open_timed` need not: ``{"path", "binding", "feeds" (a file), "threads"}``."""
    global _timed
    network = _network(params)
    session = _session(network.model, params["threads"], timed=True)
    feeds = dict(zip([spec.name for spec in network.inputs], load_arrays(params["feeds"]), strict=True))
    _timed = (params, session, feeds)


def open_timed(params: dict[str, Any]) -> dict[str, Any]:
    """Load the model with the best settings, unless it is, and run it once; params as for `prepare_timed`.

    Returns:
        ``first_sec``: how long one inference takes after that, roughly.
    """
    if _timed is None or _timed[0] != params:
        prepare_timed(params)
    session, feeds = _opened()
    return {"first_sec": warm_call_sec(lambda: session.run(None, feeds))}


def _opened() -> tuple[onnxruntime.InferenceSession, dict[str, NDArray[Any]]]:
    if _timed is None:
        raise InvariantError("no model is open")
    return _timed[1:]


@span("time ONNX Runtime", SpanKind.TIMING)
def sample(params: dict[str, Any]) -> dict[str, Any]:
    """Return `watched_sample` of ``number`` inferences."""
    session, feeds = _opened()
    return watched_sample(lambda: session.run(None, feeds), params["number"])


def _network(params: dict[str, Any]) -> BoundNetwork:
    return bound_network(params["path"], Binding.from_json(params["binding"]))


def _session(model: onnx.ModelProto, threads: int, *, timed: bool) -> onnxruntime.InferenceSession:
    """Load the model: with the best settings if it is timed, else without optimisations."""
    source = runnable_bytes(model, rounds=not timed)
    return open_session(source, threads, optimised=timed, timed=timed)


def _run(
    session: onnxruntime.InferenceSession, specs: Sequence[TensorSpec], arrays: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:
    return run_session(session, [spec.name for spec in specs], arrays)


HANDLERS = {
    "make_reference": make_reference,
    "make_segments": make_segments,
    "prepare_timed": prepare_timed,
    "open_timed": open_timed,
    "run_once": run_once,
    "run_samples": run_samples,
    "sample": sample,
    "write_network": write_network,
}
