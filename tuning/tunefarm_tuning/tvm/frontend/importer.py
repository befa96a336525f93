"""TVM's ONNX importer with our converters in front of its own; an error names the node that could not be imported."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax, tirx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map, onnx_input

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean, clean_message
from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS, all_nodes, opsets_of
from tunefarm_tuning.frontend.onnx.sanitize import PART_DOMAIN, PART_OPERATOR, sanitize_model
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.frontend.constant_folding import fold
from tunefarm_tuning.tvm.frontend.converters.arithmetic import BROADCASTING, widen_constants
from tunefarm_tuning.tvm.frontend.converters.runtime_part import convert_part
from tunefarm_tuning.tvm.frontend.converters.symbolic import SYMBOLIC_CONVERTERS
from tunefarm_tuning.tvm.frontend.converters.table import CONVERTERS, MICROSOFT, ML
from tunefarm_tuning.tvm.frontend.function_bodies import body_opset, expandable_operators, function_body
from tunefarm_tuning.tvm.frontend.node_context import (
    EmptyMeanError,
    NodeContext,
    NoOneShapeError,
    UnsupportedFormError,
    fixed_shape,
    has_fixed_shape,
    has_known_shape,
    is_symbolic_tensor,
)
from tunefarm_tuning.tvm.frontend.size_rules import RULES, note_conditions
from tunefarm_tuning.tvm.frontend.symbolic_sizes import SymbolicSizes
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShape, open_dimensions, with_dimensions
from tunefarm_tuning.workload.runtime_part import OpenSpec

if TYPE_CHECKING:
    import onnx

    from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork

_CONTRIBUTED = frozenset({
    "Attention", "BiasGelu", "EmbedLayerNormalization", "FastGelu", "Gelu", "MatMulInteger16",
    "SkipLayerNormalization",
})  # fmt: skip
"""Names that mean operators of ONNX Runtime in TVM's importer, not the ones that ONNX adopted later."""
_CONTRIBUTED_ONLY = _CONTRIBUTED - {"Gelu"}
_MEANS = frozenset({"GlobalAveragePool", "ReduceMean"})
_PARTS = {f"{PART_DOMAIN}.{PART_OPERATOR}": convert_part}
_NO_PLAIN_FUNCTIONS = frozenset({"Bernoulli", "SequenceMap"})
"""Operators that ONNX defines by random numbers or by a graph in the model."""


@dataclass(frozen=True, slots=True)
class ImportedModule:
    """An imported model: ``main`` is the network, in Relax; the shape and dtype of each output.

    A dimension is None if it depends on values, which only a part for ONNX Runtime may return.
    """

    module: tvm.IRModule
    outputs: tuple[tuple[tuple[int | None, ...], str], ...]


def supported_operators() -> frozenset[str]:
    """Return the names of the default domain's operators that can be imported: by TVM, by us, or by ONNX's definition."""
    tvms = frozenset(_get_convert_map()) - _CONTRIBUTED_ONLY
    ours = frozenset(name for name in CONVERTERS if "." not in name)
    return tvms | ours | (expandable_operators() - _NO_PLAIN_FUNCTIONS) | {"If", "MelWeightMatrix"}


def contributed_operators() -> frozenset[str]:
    """Return the names of ONNX Runtime's own operators that can be imported."""
    return _CONTRIBUTED | _converted(MICROSOFT)


def machine_learning_operators() -> frozenset[str]:
    """Return the names of the operators of ``ai.onnx.ml`` that can be imported."""
    return _converted(ML)


def _converted(prefix: str) -> frozenset[str]:
    return frozenset(name.removeprefix(prefix) for name in CONVERTERS if name.startswith(prefix))


def import_bound(network: BoundNetwork, open_values: Sequence[OpenSpec] = ()) -> ImportedModule:
    """Import a network whose inputs have been bound. Its model is changed on the way.

    Args:
        network: The network, or the compiled half of one (`frontend.onnx.parts.cut`).
        open_values: The values whose sizes depend on other values: what parts return.

    Raises:
        InvalidModelError: unsupported-operator, with the operator and the node, if one of its nodes cannot be imported; bad-shape if
            one averages no elements.
    """
    by_name = {spec.name: spec for spec in open_values if spec.is_open}
    outputs = network.model.graph.output
    open_outputs = {n: by_name[v.name] for n, v in enumerate(outputs) if v.name in by_name}
    node_names = sanitize_model(network.model)
    importer = NetworkImporter()
    module = importer.import_sanitized(network.model, node_names)
    return ImportedModule(module, _output_types(module, importer, node_names, open_outputs))


@dataclass(frozen=True, slots=True)
class OpenModule:
    """A model imported for all sizes of some dimensions.

    Attributes:
        module: Its ``main`` takes, first, the open dimensions in order of first use, each divided by its multiple, as one
            shape; then the inputs.
        shapes: The shapes of the inputs, with the multiples that sizes have to be.
        minima: The smallest sizes of dimensions that have one, by name.
        maxima: The largest.
        conditions: What else the sizes have to be: `OpenShapes.conditions`.
    """

    module: tvm.IRModule
    shapes: tuple[OpenShape, ...]
    minima: Mapping[str, int]
    maxima: Mapping[str, int]
    conditions: tuple[Mapping[str, Any], ...] = ()


def import_open(network: BoundNetwork, shapes: Sequence[OpenShape]) -> OpenModule:
    """Import a network for all sizes of some dimensions. Its model is changed on the way.

    Args:
        network: The network, bound to any shapes that it takes.
        shapes: The shape of each input.

    Raises:
        InvalidModelError: unsupported-operator, if a node cannot be imported for all sizes.
    """
    node_names = sanitize_model(network.model)
    importer = NetworkImporter(shapes)
    module = importer.import_sanitized(network.model, node_names)
    conditions = importer.sizes.conditions
    dimensions = open_dimensions(tuple(shapes))
    minima, maxima, multiples = (
        {
            size.name: counts[f"d{number}"] * size.multiple
            for number, size in enumerate(dimensions)
            if f"d{number}" in counts
        }
        for counts in (conditions.minima, conditions.maxima, conditions.multiples)
    )
    names = {f"d{number}": (size.name, size.multiple) for number, size in enumerate(dimensions)}
    listed = conditions.plain(names, lambda node: _named(node, node_names))
    taken = with_dimensions(
        shapes, lambda size: replace(size, multiple=multiples.get(size.name, size.multiple))
    )
    return OpenModule(module, taken, minima, maxima, listed)


def with_domains(nodes: Iterable[onnx.NodeProto]) -> None:
    """Put the domain of operators that are not ONNX's own in front of their names: TVM's importer knows names only."""
    for node in nodes:
        if node.domain not in ONNX_DOMAINS:
            node.op_type = f"{node.domain}.{node.op_type}"


class NetworkImporter(ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer with our converters first.

    Attributes:
        at: Operator and name of the node that is being imported; None between nodes.
        first_without_shape: The same for the first node whose output has no fixed shape.
        sizes: What is known of the sizes that nodes compute from open dimensions.

    Args:
        shapes: The inputs' shapes, if some of their dimensions are open.
    """

    def __init__(self, shapes: Sequence[OpenShape] = ()) -> None:
        super().__init__(None, None)
        self._open_shapes = tuple(shapes)
        self.sizes = SymbolicSizes(self.bb)
        self.at: tuple[str, str] | None = None
        self.first_without_shape: tuple[str, str] | None = None

    def import_sanitized(self, model: onnx.ModelProto, node_names: Sequence[str]) -> tvm.IRModule:
        """Import a model whose names are ours. Errors as of `import_bound`."""
        with_domains(all_nodes(model.graph))
        opset = opsets_of(model).get("", 1)
        try:
            # TVM prints the arguments of a node that fails: weights, perhaps.
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                return self.from_onnx(model.graph, opset)
        except Exception as error:
            raise_if_out_of_memory(error)
            raise self.explain(error, node_names) from error

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        variables = {
            dimension.name: tirx.Var(f"d{number}", "int64")
            for number, dimension in enumerate(open_dimensions(self._open_shapes))
        }
        for variable in variables.values():
            self.sizes.conditions.declare(variable)
        if variables:
            self._inputs["sizes"] = relax.Var("sizes", relax.ShapeType(list(variables.values())))
        real = [value for value in graph.input if value.name not in self._nodes]
        for value, shape in zip(real, self._open_shapes, strict=False):
            self._shape[value.name] = [
                variables[size.name] * size.multiple if isinstance(size, OpenDimension) else size
                for size in shape
            ]
        super()._parse_graph_input(graph)

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Do nothing: `_convert_operator` supports more operators, and its error names the node."""

    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
        outermost = self.at is None
        if outermost:
            self.at = (op_name, attrs["tvm_custom"]["name"])
        converted = self._convert(op_name, inputs, attrs, opset)
        _check_outputs(converted, attrs["tvm_custom"]["num_outputs"])
        self._refuse_empty_mean(op_name, inputs, converted)
        if outermost:
            is_tensor = isinstance(converted, relax.Expr)
            if self._open_shapes and is_tensor and not has_known_shape(converted.ty):
                raise NoOneShapeError("its result has no common shape for all sizes of the inputs")
            if self.first_without_shape is None and is_tensor and not has_fixed_shape(converted.ty):
                self.first_without_shape = self.at
            self.at = None
        return converted

    def _refuse_empty_mean(self, operator: str, inputs: Any, converted: Any) -> None:
        shape = fixed_shape(inputs[0]) if operator in _MEANS else None
        if shape and 0 in shape and 0 not in (fixed_shape(self.bb.normalize(converted)) or (0,)):
            raise EmptyMeanError(
                f"its input has the shape {list(shape)}, and the mean of no elements is no number: give larger sizes"
            )

    def _convert(self, operator: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        custom = attributes["tvm_custom"]
        outputs = custom["num_outputs"]
        folded = fold(operator, inputs, attributes, opset, outputs)
        if folded is not None:
            return folded
        is_symbolic = any(self.sizes.is_symbolic(x) or is_symbolic_tensor(x) for x in inputs)
        if is_symbolic:
            self.sizes.conditions.at = self.at or ("", "")
            folded = self.sizes.fold(operator, inputs, attributes, outputs)
            if folded is not None:
                return folded
            converted = self._convert_node(operator, inputs, attributes, opset)
            if operator in RULES or operator in CONVERTERS or not self._is_expanded(operator):
                converted = self.bb.normalize(converted) if isinstance(converted, relax.Call) else converted
                note_conditions(self.sizes.conditions, operator, inputs, attributes, converted)
            return converted
        return self._convert_node(operator, inputs, attributes, opset)

    def _convert_node(self, operator: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        custom = attributes["tvm_custom"]
        is_symbolic = any(self.sizes.is_symbolic(x) or is_symbolic_tensor(x) for x in inputs)
        own_attributes = {name: value for name, value in attributes.items() if name != "tvm_custom"}
        context = NodeContext(
            bb=self.bb,
            opset=opset,
            outputs=custom["num_outputs"],
            sizes=self.sizes,
            convert=self._converter(operator, custom),
        )
        for converters in (SYMBOLIC_CONVERTERS if is_symbolic else {}, CONVERTERS, _PARTS):
            if operator in converters:
                converted = converters[operator](context, inputs, own_attributes)
                if converted is not None:
                    return self.bb.normalize(converted)
        return self._convert_by_tvm(operator, inputs, attributes, opset)

    def _converter(self, asking: str, custom: dict[str, Any]) -> Callable[..., Any]:
        """Return `NodeContext.convert` for a node."""

        def convert(operator: str, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
            attributes = {**attributes, "tvm_custom": {**custom, "num_outputs": 1}}
            if operator == asking:
                attributes["tvm_custom"] = custom
                return self._convert_by_tvm(operator, inputs, attributes, opset)
            return self._convert(operator, onnx_input(inputs), attributes, opset)

        return convert

    def _convert_by_tvm(self, operator: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        name = operator.removeprefix(MICROSOFT)
        if not self._is_expanded(operator):
            inputs = widen_constants(inputs) if operator in BROADCASTING else inputs
            return super()._convert_operator(name, onnx_input(inputs), dict(attributes), opset)
        return self._expand(operator, inputs, attributes, opset)

    @staticmethod
    def _is_expanded(operator: str) -> bool:
        """Return whether an operator, unless it is one of ours, is converted by the body in ONNX's definition."""
        name = operator.removeprefix(MICROSOFT)
        return name not in _get_convert_map() or (name == operator and name in _CONTRIBUTED_ONLY)

    def _expand(self, operator: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        """Convert an operator by the body in ONNX's definition."""
        custom = attributes["tvm_custom"]
        body = function_body(operator, list(inputs), attributes, opset, custom["num_outputs"])
        if body is None:
            raise UnsupportedFormError("TVM's ONNX importer does not know it")
        values: dict[str, Any] = {"": None}
        values |= {name: inputs[number] for number, name in enumerate(body.input)}
        for node in body.node:
            attrs = self._parse_attr(node.attribute)
            attrs["tvm_custom"] = {**custom, "num_outputs": len(node.output)}
            arguments = onnx_input([values[name] for name in node.input])
            converted = self._convert_operator(node.op_type, arguments, attrs, body_opset(body, opset))
            for name, value in zip(node.output, _outputs(self.bb, converted), strict=False):
                values[name] = value
        results = [values[name] for name in list(body.output)[: custom["num_outputs"]]]
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def explain(self, error: Exception, node_names: Sequence[str]) -> InvalidModelError:
        reason = clean_message(error)
        if self.at is None:
            return InvalidModelError(f"TVM cannot import the model: {reason}", code="unsupported-operator")
        operator, node = self.at[0], _named(self.at[1], node_names)
        return InvalidModelError(
            f"TVM cannot import node {node} ({clean(operator, 60)}, opset {self.opset}): {reason}",
            code="bad-shape" if isinstance(error, EmptyMeanError) else "unsupported-operator",
            operator=clean(operator, 60),
            node=node.strip("'"),
            opset=int(self.opset),
        )


def _outputs(bb: Any, converted: Any) -> list[Any]:
    """Return the outputs of a converted node, each in a variable."""
    if isinstance(converted, relax.Tuple):
        return list(converted.fields)
    if isinstance(converted, relax.Expr) and isinstance(converted.ty, tvm.ir.TupleType):
        var = bb.emit(converted)
        return [bb.emit(relax.TupleGetItem(var, number)) for number in range(len(var.ty.fields))]
    return [bb.emit(converted)] if isinstance(converted, tvm.ir.Call) else [converted]


def _check_outputs(converted: Any, count: int) -> None:
    kind = getattr(converted, "ty", None)
    if count > 1 and isinstance(kind, relax.TensorType):
        raise UnsupportedFormError(f"TVM computes only one of its {count} outputs; remove the others")


def _output_types(
    module: tvm.IRModule,
    importer: NetworkImporter,
    node_names: Sequence[str],
    open_outputs: Mapping[int, OpenSpec],
) -> tuple[tuple[tuple[int | None, ...], str], ...]:
    returned = module["main"].ret_ty
    types = list(returned.fields) if isinstance(returned, tvm.ir.TupleType) else [returned]
    outputs: list[tuple[tuple[int | None, ...], str]] = []
    for number, kind in enumerate(types):
        if (spec := open_outputs.get(number)) is not None:
            outputs.append((spec.shape, spec.dtype))
            continue
        if not has_fixed_shape(kind) or not isinstance(kind, relax.TensorType):
            where = ""
            fields = {}
            if importer.first_without_shape is not None:
                operator, node = (
                    importer.first_without_shape[0],
                    _named(importer.first_without_shape[1], node_names),
                )
                where = f", since node {node} ({operator}) makes a tensor whose size depends on its values"
                fields = {"operator": operator, "node": node.strip("'")}
            raise InvalidModelError(
                f"the shape of output {number} cannot be known before the model runs{where}; tunefarm compiles "
                "models of fixed shapes only",
                code="unsupported-operator",
                **fields,
            )
        outputs.append((tuple(int(dim) for dim in kind.shape), str(kind.dtype.dtype)))
    return tuple(outputs)


def _named(new_name: str, node_names: Sequence[str]) -> str:
    """Return a node's own name, or its number in the file if it has none."""
    number = int(new_name.removeprefix("n"))
    name = clean(node_names[number], 100)
    return f"'{name}'" if name else f"number {number}"
