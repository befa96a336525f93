"""TVM's ONNX importer with converters of ours before its own, told apart by node: which one it was at when it failed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax, tirx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map, onnx_input

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.sanitize import all_nodes, sanitize_model
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.frontend import activations as onnx_activations
from tunefarm_tuning.tvm.frontend import older_opsets as onnx_older
from tunefarm_tuning.tvm.frontend import pad as onnx_pad
from tunefarm_tuning.tvm.frontend import quantized as onnx_quantized
from tunefarm_tuning.tvm.frontend import recurrent as onnx_recurrent
from tunefarm_tuning.tvm.frontend import repairs as onnx_repairs
from tunefarm_tuning.tvm.frontend import resize as onnx_resize
from tunefarm_tuning.tvm.frontend.converters import BROADCASTING, CONVERTERS, widen_constants
from tunefarm_tuning.tvm.frontend.folding import fold
from tunefarm_tuning.tvm.frontend.functions import body_opset, expandable_operators, function_body
from tunefarm_tuning.tvm.frontend.scope import Scope, UnsupportedFormError
from tunefarm_tuning.workload.task import TensorSpec

if TYPE_CHECKING:
    import onnx

_OURS = {
    **onnx_activations.CONVERTERS,
    **onnx_older.CONVERTERS,
    **onnx_pad.CONVERTERS,
    **onnx_quantized.CONVERTERS,
    **onnx_recurrent.CONVERTERS,
    **onnx_repairs.CONVERTERS,
    **onnx_resize.CONVERTERS,
}
_MICROSOFT = "com.microsoft."
# Of these names TVM's importer means ONNX Runtime's operators, not those that ONNX took in later.
_CONTRIBUTED = frozenset(
    [
        "Attention",
        "BiasGelu",
        "EmbedLayerNormalization",
        "FastGelu",
        "Gelu",
        "MatMulInteger16",
        "SkipLayerNormalization",
    ]
)
_CONTRIBUTED_ONLY = _CONTRIBUTED - {"Gelu"}
_NO_PLAIN_FUNCTIONS = frozenset({"Bernoulli", "SequenceMap"})
"""What ONNX defines by random numbers, or by a graph of the model's."""


@dataclass(frozen=True, slots=True)
class ImportedModule:
    """What TVM made of a model.

    Attributes:
        outputs: Shape and dtype of each.
    """

    module: tvm.IRModule
    outputs: tuple[tuple[tuple[int, ...], str], ...]


def supported_operators() -> frozenset[str]:
    """Return the names of the default domain's operators that can be imported: by TVM, by us, or by ONNX's definition."""
    tvms = frozenset(_get_convert_map()) - _CONTRIBUTED_ONLY
    ours = frozenset(name for name in _OURS if not name.startswith(_MICROSOFT))
    return tvms | ours | (expandable_operators() - _NO_PLAIN_FUNCTIONS) | {"If"}


def contributed_operators() -> frozenset[str]:
    """Return the names of ONNX Runtime's own operators that can be imported."""
    ours = (name.removeprefix(_MICROSOFT) for name in _OURS if name.startswith(_MICROSOFT))
    return _CONTRIBUTED | frozenset(ours)


def import_bound(model: onnx.ModelProto, inputs: Sequence[TensorSpec]) -> ImportedModule:
    """Import a model whose inputs have been bound; the model is used up.

    Raises:
        InvalidModelError: unsupported-operator, with the operator and the node, where TVM refuses one of them.
    """
    node_names = sanitize_model(model, inputs)
    for node in all_nodes(model.graph):
        if node.domain not in ("", "ai.onnx"):
            node.op_type = f"{node.domain}.{node.op_type}"
    importer = _Importer()
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importer.from_onnx(model.graph, opset)
    except Exception as error:
        raise_if_out_of_memory(error)
        raise importer.explain(error, node_names) from error
    return ImportedModule(module, _output_types(module, importer, node_names))


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """Puts our converters first; remembers the node at hand, and the first one whose output has no fixed shape."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.at: tuple[str, str] | None = None
        self.first_open: tuple[str, str] | None = None

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Leave it to `_convert_operator`, which knows more operators, and the node's name."""

    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
        outermost = self.at is None
        if outermost:
            self.at = (op_name, attrs["tvm_custom"]["name"])
        made = self._convert(op_name, inputs, attrs, opset)
        _check_outputs(made, attrs["tvm_custom"]["num_outputs"])
        if outermost:
            if self.first_open is None and isinstance(made, relax.Expr) and not _is_fixed(made.ty):
                self.first_open = self.at
            self.at = None
        return made

    def _convert(self, operator: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        custom = attributes["tvm_custom"]
        outputs = custom["num_outputs"]
        folded = fold(operator, inputs, attributes, opset, outputs)
        if folded is not None:
            return folded
        ours = CONVERTERS.get(operator)
        made = ours(self.bb, inputs, attributes, opset) if ours else None
        if made is None and operator in _OURS:
            given = {name: value for name, value in attributes.items() if name != "tvm_custom"}
            scope = Scope(bb=self.bb, opset=opset, outputs=outputs, convert=self._converter(operator, custom))
            made = _OURS[operator](scope, inputs, given)
        if made is not None:
            return self.bb.normalize(made)
        return self._convert_by_tvm(operator, inputs, attributes, opset)

    def _converter(self, asking: str, custom: dict[str, Any]) -> Callable[..., Any]:
        """Return what a converter of ours converts further nodes with; the operator's own name means TVM's converter."""

        def convert(operator: str, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
            attributes = {**attributes, "tvm_custom": {**custom, "num_outputs": 1}}
            if operator == asking:
                attributes["tvm_custom"] = custom
                return self._convert_by_tvm(operator, inputs, attributes, opset)
            return self._convert(operator, onnx_input(inputs), attributes, opset)

        return convert

    def _convert_by_tvm(self, operator: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        name = operator.removeprefix(_MICROSOFT)
        if name in _get_convert_map() and (name != operator or name not in _CONTRIBUTED_ONLY):
            inputs = widen_constants(inputs) if operator in BROADCASTING else inputs
            return super()._convert_operator(name, onnx_input(inputs), dict(attributes), opset)
        return self._expand(operator, inputs, attributes, opset)

    def _expand(self, operator: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
        """Convert the nodes by which ONNX defines an operator."""
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
            made = self._convert_operator(node.op_type, arguments, attrs, body_opset(body, opset))
            for name, value in zip(node.output, _parts(self.bb, made), strict=False):
                values[name] = value
        results = [values[name] for name in list(body.output)[: custom["num_outputs"]]]
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def explain(self, error: Exception, node_names: Sequence[str]) -> InvalidModelError:
        reason = clean(" ".join(str(error).split()) or type(error).__name__, 300)
        if self.at is None:
            return InvalidModelError(f"TVM cannot import the model: {reason}", code="unsupported-operator")
        operator, node = self.at[0], _named(self.at[1], node_names)
        return InvalidModelError(
            f"TVM cannot import node {node} ({clean(operator, 60)}, opset {self.opset}): {reason}",
            code="unsupported-operator",
            operator=clean(operator, 60),
            node=node.strip("'"),
            opset=int(self.opset),
        )


def _parts(bb: Any, made: Any) -> list[Any]:
    """Return what a node's outputs are."""
    if isinstance(made, relax.Tuple):
        return list(made.fields)
    if isinstance(made, relax.Expr) and isinstance(made.ty, tvm.ir.TupleType):
        made = bb.emit(made)
        return [bb.emit(relax.TupleGetItem(made, number)) for number in range(len(made.ty.fields))]
    return [bb.emit(made)] if isinstance(made, tvm.ir.Call) else [made]


def _check_outputs(made: Any, wanted: int) -> None:
    kind = getattr(made, "ty", None)
    if wanted > 1 and isinstance(kind, relax.TensorType):
        raise UnsupportedFormError(
            f"TVM makes one of its {wanted} outputs; leave the others out of the model"
        )


def _output_types(
    module: tvm.IRModule, importer: _Importer, node_names: Sequence[str]
) -> tuple[tuple[tuple[int, ...], str], ...]:
    returned = module["main"].ret_ty
    types = list(returned.fields) if isinstance(returned, tvm.ir.TupleType) else [returned]
    found = []
    for number, one in enumerate(types):
        if not _is_fixed(one) or not isinstance(one, relax.TensorType):
            where = ""
            fields = {}
            if importer.first_open is not None:
                operator, node = importer.first_open[0], _named(importer.first_open[1], node_names)
                where = f", since node {node} ({operator}) makes a tensor whose size depends on its values"
                fields = {"operator": operator, "node": node.strip("'")}
            raise InvalidModelError(
                f"the shape of output {number} cannot be known before the model runs{where}; tunefarm compiles "
                "models of fixed shapes only",
                code="unsupported-operator",
                **fields,
            )
        found.append((tuple(int(dim) for dim in one.shape), str(one.dtype.dtype)))
    return tuple(found)


def _is_fixed(kind: Any) -> bool:
    if isinstance(kind, tvm.ir.TupleType):
        return all(_is_fixed(field) for field in kind.fields)
    if isinstance(kind, relax.TensorType):
        return isinstance(kind.shape, relax.ShapeExpr) and all(
            isinstance(dim, tirx.IntImm) for dim in kind.shape.values
        )
    return True


def _named(new_name: str, node_names: Sequence[str]) -> str:
    """Return a node's own name, or its place in the file where it has none."""
    number = int(new_name.removeprefix("n"))
    name = clean(node_names[number], 100)
    return f"'{name}'" if name else f"number {number}"
