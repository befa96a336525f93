"""Child process: check a model file by its bytes, our rules, ONNX's checker and ONNX Runtime; TVM comes after."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx.checker
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tunefarm_convert import FileFormat, check_onnx_bytes, file_format, to_onnx
from tunefarm_text.shape_text import ShapeChoices
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16
from tunefarm_tuning.frontend.onnx.binding import bind_inputs, dimension_names, open_inputs, several_sizes
from tunefarm_tuning.frontend.onnx.bound_network import (
    BoundNetwork,
    bind_model,
    bound_network,
    runnable_bytes,
)
from tunefarm_tuning.frontend.onnx.constant_indices import nodes_computed_at_import, refuse_bad_indices
from tunefarm_tuning.frontend.onnx.control_flow.branches import VALUE_HINT
from tunefarm_tuning.frontend.onnx.control_flow.flatten import has_control_flow
from tunefarm_tuning.frontend.onnx.graph_reading import all_graphs, all_nodes, opsets_of
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes, read_model
from tunefarm_tuning.frontend.onnx.operators import MICROSOFT, is_of_onnx_runtime_alone
from tunefarm_tuning.frontend.onnx.parts.plan import may_be_hybrid
from tunefarm_tuning.frontend.onnx.proposals.trial import tried_binding
from tunefarm_tuning.frontend.onnx.rules import (
    check_bound_rules,
    check_file_rules,
    check_input_sizes,
    check_rules,
    count_operators,
    count_parameters,
    refuse_endless_scales,
    refuse_other_outputs,
)
from tunefarm_tuning.frontend.onnx.shape_trials import run_further_shapes
from tunefarm_tuning.frontend.onnx.standard_form.form import in_standard_form
from tunefarm_tuning.frontend.onnx.trial_run import (
    is_out_of_memory,
    load_fix,
    name_nodes,
    run_error,
    run_on_drawn_inputs,
)
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.shapes import Combination, combinations, least_batch, shape_choices

_ORT_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")


@span("check the file", SpanKind.GRAPH)
def inspect(params: dict[str, Any]) -> dict[str, Any]:
    """Check a file and describe it; the params are the arguments of `inspect_file`, with the binding as JSON."""
    return inspect_file(**{**params, "binding": Binding.from_json(params["binding"])})


def inspect_file(
    path: str,
    binding: Binding,
    *,
    max_nodes: int,
    max_tensor_bytes: int,
    choices: Mapping[str, str] | None = None,
    hybrid: bool = False,
) -> dict[str, Any]:
    """Check a file and describe it: inputs, operators, opset, parameters.

    Args:
        path: The file.
        binding: What the caller gave.
        max_nodes: Limit of nodes.
        max_tensor_bytes: Limit of an input's size.
        choices: Texts of `tunefarm_text.shape_text` by input, for several sets of shapes, which ``combinations`` of the answer
            lists: ``shapes``, ``weight``. The inputs are of the first.
        hybrid: Whether ONNX Runtime may run what cannot be compiled.

    Returns:
        ``not_compiled``: why ONNX Runtime has to run a part of it, as an error; null if that is not known yet.

    Raises:
        InvalidModelError: With the code of the first fault.
    """
    data = Path(path).read_bytes()
    is_tflite = file_format(data) is FileFormat.TFLITE
    parsed = {name: shape_choices(text, name=name) for name, text in (choices or {}).items()}
    if is_tflite:
        # A TFLite file has no names for its dimensions, and is converted for the shapes that are given.
        combined = combinations(parsed, {}) if parsed else ()
        binding = replace(binding, shapes=combined[0].shapes) if combined else binding
        model = to_onnx(data, FileFormat.TFLITE, binding.shapes, needs_sizes=True)
        open_names = list(binding.shapes)
    else:
        check_onnx_bytes(data)
        model = _parse(data)
        check_file_rules(model, max_nodes=max_nodes)
        model = in_standard_form(model)
        open_names = open_inputs(model.graph)
    not_compiled = check_rules(model, max_nodes=max_nodes)
    if not_compiled is not None and not hybrid:
        raise not_compiled
    refuse_other_outputs(model.graph)
    if not is_tflite:
        combined = _combinations(model, binding, parsed, max_tensor_bytes)
        binding = replace(binding, shapes=combined[0].shapes) if combined else binding
    if has_control_flow(model.graph):
        _run_checker(_checkable(model), not_compiled)  # inner graphs, which are gone in the bound network
    bound = bind_model(model, binding, keep_unresolved=True)
    inputs = bound.inputs
    # A setting that decides a branch is better bound than left to ONNX Runtime. How often a loop runs may be data.
    loop_for_onnx_runtime = (
        hybrid and bound.unresolved is not None and bound.unresolved.code == "unknown-loop"
    )
    if bound.unresolved is not None and VALUE_HINT in bound.unresolved.message and not loop_for_onnx_runtime:
        raise bound.unresolved
    not_compiled = not_compiled or bound.unresolved or check_bound_rules(model, max_nodes=max_nodes)
    if not_compiled is not None and not (hybrid and may_be_hybrid(model)):
        raise not_compiled
    check_input_sizes(inputs, max_bytes=max_tensor_bytes)
    _run_checker(_checkable(model), not_compiled)
    refuse_bad_indices(model.graph)
    refuse_endless_scales(model.graph)
    return {
        "inputs": [spec.to_json() for spec in inputs],
        "open_inputs": open_names,
        "least_batch": least_batch(parsed.values()),
        "combinations": [{"shapes": dict(item.shapes), "weight": item.weight} for item in combined],
        "operators": count_operators(model),
        "opset": opsets_of(model).get("", 0),
        "num_params": count_parameters(model),
        "not_compiled": None if not_compiled is None else not_compiled.to_json(),
    }


def _combinations(
    model: onnx.ModelProto, binding: Binding, choices: Mapping[str, ShapeChoices], max_tensor_bytes: int
) -> tuple[Combination, ...]:
    """Return the combinations of several shapes, each checked; none if there is one shape only."""
    if not choices:
        return ()
    combined = combinations(choices, dimension_names(model.graph))
    for item in combined:
        inputs = bind_inputs(model.graph, item.shapes, binding.values)
        check_input_sizes(inputs, max_bytes=max_tensor_bytes)
    return combined


_DTYPES = {
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""ONNX Runtime's names of the dtypes that NumPy has."""


_FURTHER_SEC = 30.0
"""Time budget of the runs with further sets of shapes: an import stays quick."""


@span("run once in ONNX Runtime", SpanKind.REFERENCE)
def run_in_onnx_runtime(params: dict[str, Any]) -> dict[str, Any]:
    """Let ONNX Runtime load the bound network and run it once, on one thread; optimisations are off.

    Params: ``path``, ``binding``; ``more``: further bindings, with which it is run too, as far as 30 s go.

    Returns:
        ``output_dtypes``: numpy's names of the outputs' dtypes, in order; null for dtypes that numpy lacks.
        ``fits``: whether the run's tensors fit into memory.

    Raises:
        InvalidModelError: invalid-onnx, unsupported-operator where the model is right but ONNX Runtime has no such operator,
            bad-shape if dimensions of one name have several sizes, or a code of `run_on_drawn_inputs`.
    """
    try:
        return _run_reference(params)
    except InvalidModelError as error:
        shapes = Binding.from_json(params["binding"]).shapes
        sizes = several_sizes(read_model(params["path"], shapes).graph, shapes)
        if not sizes or error.code not in ("cannot-run", "invalid-onnx"):
            raise
        raise InvalidModelError(
            f"{sizes}; the network does not run with these sizes: {error.message}",
            code="bad-shape",
            **error.fields,
        ) from error


def _run_reference(params: dict[str, Any]) -> dict[str, Any]:
    network = bound_network(params["path"], Binding.from_json(params["binding"]))
    model = network.model
    name_nodes(model)
    if uses_bfloat16(model.graph):
        # Its float32 form hides type errors. ONNX Runtime checks types before it looks for kernels.
        try:
            _load(onnx_bytes(model))
        except InvalidModelError as error:
            if error.code != "unsupported-operator":
                raise
    session = _load(runnable_bytes(model))
    fits, ran = True, False
    try:
        ran = run_on_drawn_inputs(lambda feeds: session.run(None, feeds), network)
    except MemoryError:
        fits = False  # the importer may know which tensor is too large
    if not ran:
        _run_nodes_of_import(network)
    output_dtypes = [_DTYPES.get(output.type) for output in session.get_outputs()]
    more = [Binding.from_json(binding) for binding in params.get("more", ())]
    if fits and more:
        del session, network, model  # the weights need not be there twice
        run_further_shapes(params["path"], more, _load, budget_sec=_FURTHER_SEC)
    return {"output_dtypes": output_dtypes, "fits": fits}


def _run_nodes_of_import(network: BoundNetwork) -> None:
    """Run what TVM computes at the import, unchecked, of a network that did not run as a whole.

    Raises:
        InvalidModelError: As `run_in_onnx_runtime`.
    """
    model = nodes_computed_at_import(network)
    if model is None:
        return
    session = _load(runnable_bytes(model))
    arrays = random_inputs(network.inputs, seed=0)  # of which only the shapes matter
    feeds = {spec.name: array for spec, array in zip(network.inputs, arrays, strict=True)}
    try:
        session.run(None, {given.name: feeds[given.name] for given in session.get_inputs()})
    except MemoryError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        raise run_error(error) from error


def propose_binding(params: dict[str, Any]) -> dict[str, Any] | None:
    """Return a binding with which ONNX Runtime runs the network.

    Params: ``path``, ``binding``: what the caller gave, ``max_tensor_bytes``.

    Returns:
        ``binding``, and whether it ``runs``: otherwise it is the likeliest of those that were not tried. None if there is
        no idea of one.
    """
    given = Binding.from_json(params["binding"])
    return tried_binding(params["path"], given, _load, max_tensor_bytes=params["max_tensor_bytes"])


def _load(source: bytes) -> Any:
    from tunefarm_tuning.frontend.onnx.reference.runtime import new_session

    try:
        return new_session(source, 1, optimised=False)
    except MemoryError:
        raise
    except Exception as error:
        reason = _reason(error)
        if "NOT_IMPLEMENTED" in str(error):
            raise InvalidModelError(
                f"ONNX Runtime, which checks the results, cannot run the model: {reason}",
                code="unsupported-operator",
            ) from error
        raise InvalidModelError(
            f"the model is not valid ONNX: {reason}{load_fix(str(error))}", code="invalid-onnx"
        ) from error


def _parse(data: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise InvalidModelError(
            "the model is damaged: it begins like ONNX, but does not parse (graphs nested deeper than protobuf's "
            "100 levels do not either)",
            code="invalid-onnx",
        ) from error
    return model


def _checkable(model: onnx.ModelProto) -> bytes:
    """Return the bytes of a model that the checker understands.

    It insists on a rank for every output, a name for every graph and one value for every key of the metadata, and does not know the
    operators that ONNX Runtime has put into ONNX's domain.
    """
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if len(metadata) < len(model.metadata_props):
        onnx.helper.set_model_props(model, metadata)
    for graph in all_graphs(model.graph):
        graph.name = graph.name or "graph"
    for value in model.graph.output:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.shape.SetInParent()
    opset = opsets_of(model).get("", 1)
    strange = [node for node in all_nodes(model.graph) if is_of_onnx_runtime_alone(node, opset)]
    for node in strange:
        node.domain = MICROSOFT
    is_declared = any(entry.domain == MICROSOFT for entry in model.opset_import)
    if strange and not is_declared:
        model.opset_import.add(domain=MICROSOFT, version=1)
    try:
        return onnx_bytes(model)
    finally:
        for node in strange:
            node.ClearField("domain")
        if strange and not is_declared:
            del model.opset_import[-1]


def _run_checker(data: bytes, not_compiled: InvalidModelError | None) -> None:
    """Have ONNX check a model; if it refuses one that could not be compiled anyway, say why that is."""
    try:
        # Without full_check: its shape inference can run for ever.
        onnx.checker.check_model(data)
    except onnx.checker.ValidationError as error:
        if not_compiled is not None:
            raise not_compiled from error
        reason = _reason(error)
        raise InvalidModelError(f"the model is not valid ONNX: {reason}", code="invalid-onnx") from error


def _reason(error: Exception) -> str:
    """Return a library's message on one line."""
    return clean(_ORT_PREFIX.sub("", " ".join(str(error).split())), 300)


HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "inspect": inspect,
    "run_in_onnx_runtime": run_in_onnx_runtime,
    "propose_binding": propose_binding,
}
