"""A model's own functions: their bodies take the place of their calls, and everything after sees plain operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import onnx
import onnx.inliner
import onnx.shape_inference

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.graph_reading import all_nodes, domain_of, opsets_of

_MAX_BYTES = 2**31 - 1
"""Protobuf's limit of a message."""
_LISTED = 8

_Name = tuple[str, str, str]
"""Domain, name and overload of a function."""


def check_functions(model: onnx.ModelProto, *, max_nodes: int) -> None:
    """Refuse functions that cannot be put in the place of their calls.

    Only what the graph calls counts. A few functions that call each other twice can stand for more nodes than any memory
    holds, so they are counted before a call is replaced.

    Raises:
        InvalidModelError: invalid-onnx for two functions of one name, one that calls itself, or a call with too many inputs or
            outputs; unsupported-operator for a default that we could lose; too-large.
    """
    functions: dict[_Name, onnx.FunctionProto] = {}
    for function in model.functions:
        name = _own_name(function)
        if name in functions:
            raise InvalidModelError(
                f"the model has two functions called {_shown(name)}; names must be unique",
                code="invalid-onnx",
            )
        functions[name] = function
    if not functions:
        return
    for caller in (model.graph, *functions.values()):
        for node in _inside(caller.node):
            if (function := functions.get(_called(node))) is not None:
                _check_call(node, function)
    whole = _size(model.graph.node, _sizes(functions))
    inlined = "with its functions inlined"
    if whole.nodes > max_nodes:
        raise InvalidModelError(
            f"{inlined}, the model has {whole.nodes} nodes; the limit is {max_nodes}",
            code="too-large",
            nodes=whole.nodes,
            limit_nodes=max_nodes,
        )
    if whole.num_bytes > _MAX_BYTES:
        raise InvalidModelError(
            f"{inlined}, the model has {whole.num_bytes} bytes; protobuf's limit is {_MAX_BYTES}",
            code="too-large",
            size_bytes=whole.num_bytes,
            limit_bytes=_MAX_BYTES,
        )


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model, which `check_functions` has accepted, without functions of its own.

    Raises:
        InvalidModelError: invalid-onnx: a body cannot be written in the model's opset.
    """
    if not model.functions:
        return model
    _write_defaults(model)
    _write_opsets(model)
    opsets = {domain_of(entry.domain) for entry in model.opset_import}
    missing = {
        domain_of(entry.domain): entry.version
        for function in model.functions
        for entry in function.opset_import
        if domain_of(entry.domain) not in opsets
    }
    own = {domain_of(function.domain) for function in model.functions}
    try:
        # A body that is written in another opset is converted by the types of what the call reads.
        typed = onnx.shape_inference.infer_shapes(model) if _has_other_opsets(model) else model
        inlined = onnx.inliner.inline_local_functions(typed, convert_version=True)
    except (
        RuntimeError,
        ValueError,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
    ) as error:
        raise InvalidModelError(
            f"the model's functions cannot be inlined: {clean(' '.join(str(error).split()), 300)}",
            code="invalid-onnx",
        ) from error
    for domain, version in missing.items():
        if domain not in own:
            inlined.opset_import.append(onnx.helper.make_opsetid(domain, version))
    return inlined


def _write_opsets(model: onnx.ModelProto) -> None:
    """Write the model's opset into functions whose operators are the same there, in place: converting a body needs types and may fail."""
    opsets = opsets_of(model)
    wanted = opsets.get("")
    for function in model.functions:
        for entry in function.opset_import:
            if domain_of(entry.domain) or wanted in (None, entry.version):
                continue
            operators = {node.op_type for node in _inside(function.node) if not domain_of(node.domain)}
            if all(_is_same(operator, entry.version, wanted) for operator in operators):
                entry.version = wanted


def _is_same(operator: str, *opsets: int | None) -> bool:
    """Return whether an operator has the same inputs, outputs and attributes in two opsets: its types may differ."""
    try:
        schemas = [onnx.defs.get_schema(operator, opset) for opset in opsets]
    except (onnx.defs.SchemaError, TypeError):  # a version beyond 32 bits is a TypeError
        return False
    if len({schema.since_version for schema in schemas}) == 1:
        return True
    forms = [
        (
            [value.name for value in schema.inputs],
            [value.name for value in schema.outputs],
            {
                name: (attribute.required, attribute.default_value.SerializeToString(deterministic=True))
                for name, attribute in schema.attributes.items()
            },
        )
        for schema in schemas
    ]
    return forms[0] == forms[1]


def _has_other_opsets(model: onnx.ModelProto) -> bool:
    opsets = opsets_of(model)
    return any(
        opsets.get(domain_of(entry.domain), entry.version) != entry.version
        for function in model.functions
        for entry in function.opset_import
    )


def _write_defaults(model: onnx.ModelProto) -> None:
    """Give the calls of functions the attributes that they leave to a default, in place: ONNX's inliner forgets them."""
    defaults = {_own_name(function): list(function.attribute_proto) for function in model.functions}
    for caller in (model.graph, *model.functions):
        for node in _inside(caller.node):
            given = {attribute.name for attribute in node.attribute}
            node.attribute.extend(a for a in defaults.get(_called(node), ()) if a.name not in given)


def _check_call(node: onnx.NodeProto, function: onnx.FunctionProto) -> None:
    name = _shown(_called(node))
    for kind, given, most in (
        ("inputs", len(node.input), len(function.input)),
        ("outputs", len(node.output), len(function.output)),
    ):
        if given > most:
            raise InvalidModelError(
                f"node '{clean(node.name, 60)}' calls function {name} with {given} {kind}; it has {most}",
                code="invalid-onnx",
            )
    defaults = {attribute.name for attribute in function.attribute_proto}
    for attribute in node.attribute:
        if attribute.ref_attr_name and attribute.name in defaults:
            raise InvalidModelError(
                f"a function of the model calls {name} and passes its own attribute on as '{clean(attribute.name, 60)}', for "
                "which that one has a default: it is not known which of them holds; write the value into the call",
                code="unsupported-operator",
                operator=clean(node.op_type, 60),
            )


@dataclass(frozen=True, slots=True)
class _Size:
    nodes: int
    num_bytes: int


def _sizes(functions: Mapping[_Name, onnx.FunctionProto]) -> dict[_Name, _Size]:
    """Return the size of each function once what it calls is in it."""
    calls = {
        name: {called for node in _inside(function.node) if (called := _called(node)) in functions}
        for name, function in functions.items()
    }
    sizes: dict[_Name, _Size] = {}
    try:
        for name in TopologicalSorter(calls).static_order():
            sizes[name] = _size(functions[name].node, sizes)
    except CycleError as error:
        circle = " -> ".join(_shown(name) for name in error.args[1][:_LISTED])
        raise InvalidModelError(
            f"functions of the model call themselves: {circle}", code="invalid-onnx"
        ) from None
    return sizes


def _size(nodes: Iterable[onnx.NodeProto], sizes: Mapping[_Name, _Size]) -> _Size:
    """Return how large nodes are with functions of given sizes in the place of their calls."""
    count = num_bytes = 0
    for node in nodes:
        num_bytes += node.ByteSize()
        for inner in _inside([node]):
            called = sizes.get(_called(inner), _Size(1, 0))
            count += called.nodes
            num_bytes += called.num_bytes
    return _Size(count, num_bytes)


def _inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes with those of their inner graphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from all_nodes(graph)


def _called(node: onnx.NodeProto) -> _Name:
    return (domain_of(node.domain), node.op_type, node.overload)


def _own_name(function: onnx.FunctionProto) -> _Name:
    return (domain_of(function.domain), function.name, function.overload)


def _shown(name: _Name) -> str:
    return f"'{clean('.'.join(part for part in name if part), 100)}'"
