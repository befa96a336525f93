"""TVM's ONNX importer, told apart by node: which one it was at when it failed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax, tirx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

from tunefarm_tuning.errors import InvalidModelError
from tunefarm_tuning.onnx_side.plain_graph import make_plain
from tunefarm_tuning.task import TensorSpec
from tunefarm_tuning.tvm_side.memory import raise_if_out_of_memory
from tunefarm_tuning.tvm_side.onnx_converters import BROADCASTING, CONVERTERS, widen_constants
from tunefarm_tuning.untrusted_text import clean

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class ImportedModule:
    """What TVM made of a model.

    Attributes:
        outputs: Shape and dtype of each.
    """

    module: tvm.IRModule
    outputs: tuple[tuple[tuple[int, ...], str], ...]


def supported_operators() -> frozenset[str]:
    """Return the names of the operators that TVM's importer has a converter for."""
    return frozenset(_get_convert_map()) | {"If"}


def import_bound(model: onnx.ModelProto, inputs: Sequence[TensorSpec]) -> ImportedModule:
    """Import a model whose inputs have been bound; the model is used up.

    Raises:
        InvalidModelError: unsupported-operator, with the operator and the node, where TVM refuses one of them.
    """
    node_names = make_plain(model, inputs)
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

    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
        self.at = (op_name, attrs["tvm_custom"]["name"])
        ours = CONVERTERS.get(op_name)
        made = ours(self.bb, inputs, attrs, opset) if ours else None
        if made is None:
            if op_name in BROADCASTING:
                inputs = widen_constants(inputs)
            made = super()._convert_operator(op_name, inputs, attrs, opset)
        if self.first_open is None and isinstance(made, relax.Expr) and not _is_fixed(made.ty):
            self.first_open = self.at
        self.at = None
        return made

    def explain(self, error: Exception, node_names: Sequence[str]) -> InvalidModelError:
        reason = clean(" ".join(str(error).split()) or type(error).__name__, 300)
        if self.at is None:
            return InvalidModelError(f"TVM cannot import the model: {reason}", code="unsupported-operator")
        operator, node = self.at[0], _named(self.at[1], node_names)
        return InvalidModelError(
            f"TVM cannot import node {node} ({clean(operator, 60)}): {reason}",
            code="unsupported-operator",
            operator=clean(operator, 60),
            node=node.strip("'"),
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
