"""Parse a StableHLO module into a program. No other module runs MLIR's parser."""

from __future__ import annotations

import re
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from tunefarm_convert.signatures import is_portable
from tunefarm_convert.stablehlo.attributes import dense_array, read_attribute, read_type
from tunefarm_convert.stablehlo.program import Block, Operation, Program, bad_program
from tunefarm_tuning.core.untrusted_text import clean, clean_message

_BLOB = re.compile(r'^\s*"?([^\s":]+)"?: "0x([0-9A-Fa-f]*)"', re.MULTILINE)
_ALIGNMENT_DIGITS = 8
"""Digits before a blob's bytes: four bytes give its alignment."""


def parse_module(data: bytes) -> Any:
    """Parse a module, text or bytecode.

    Raises:
        InvalidModelError: invalid-stablehlo.
    """
    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (chlo, sdy, stablehlo):
        dialect.register_dialect(context)
    try:
        if is_portable(data):
            return stablehlo.deserialize_portable_artifact(context, data)
        return ir.Module.parse(data, context=context)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        reason = clean_message(error)
        raise bad_program(f"MLIR cannot parse the file as StableHLO: {reason}") from error


def custom_calls(module: Any) -> set[str]:
    """Return all external functions that a module names anywhere, even in unused parts."""
    targets: set[str] = set()

    def look(operation: Any) -> Any:
        if operation.name.rpartition(".")[2] == "custom_call":
            known = "call_target_name" in operation.attributes
            targets.add(ir.StringAttr(operation.attributes["call_target_name"]).value if known else "")
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return targets


def read_program(module: Any) -> Program:
    """Return a module as plain values.

    Raises:
        InvalidModelError: invalid-stablehlo.
    """
    functions: dict[str, Any] = {}
    for operation in module.body.operations:
        if operation.operation.name == "func.func":
            functions[ir.StringAttr(operation.attributes["sym_name"]).value] = operation.operation
    bodies = {
        name: function
        for name, function in functions.items()
        if function.regions and len(function.regions[0].blocks) == 1
    }
    main = _main(bodies)
    reader = _Reader(module)
    # The main function first: operations are numbered from its beginning.
    order = [main, *(name for name in bodies if name != main)]
    blocks = {name: reader.block(bodies[name].regions[0].blocks[0]) for name in order}
    entry = bodies[main]
    return Program(
        functions=blocks,
        main=main,
        input_names=tuple(_where(argument.location) for argument in entry.regions[0].blocks[0].arguments),
        output_names=tuple(_result_names(entry, len(blocks[main].returned))),
    )


def _main(bodies: dict[str, Any]) -> str:
    if "main" in bodies:
        return "main"
    public = [
        name
        for name, body in bodies.items()
        if "sym_visibility" not in body.attributes or "private" not in str(body.attributes["sym_visibility"])
    ]
    if len(public) != 1:
        names = ", ".join(clean(name, 60) for name in public[:10]) or "none"
        raise bad_program(f"the module has no function main, and not exactly one public function: {names}")
    return public[0]


def _result_names(function: Any, count: int) -> list[str]:
    if "res_attrs" not in function.attributes:
        return [""] * count
    names = []
    for attributes in ir.ArrayAttr(function.attributes["res_attrs"]):
        described = ir.DictAttr(attributes)
        names.append(
            ir.StringAttr(described["jax.result_info"]).value if "jax.result_info" in described else ""
        )
    return names


class _Reader:
    def __init__(self, module: Any) -> None:
        self._module = module
        self._values: dict[Any, int] = {}
        self._blobs: dict[str, bytes] | None = None
        self._operations = 0

    def block(self, block: Any) -> Block:
        arguments = tuple(
            (self._number(operation), read_type(operation.type)) for operation in block.arguments
        )
        operations = []
        returned: tuple[int, ...] = ()
        for view in block.operations:
            operation = view.operation
            if operation.name in ("stablehlo.return", "func.return"):
                returned = tuple(self._values[value] for value in operation.operands)
            else:
                operations.append(self._operation(operation))
        return Block(arguments=arguments, operations=tuple(operations), returned=returned)

    def _number(self, value: Any) -> int:
        return self._values.setdefault(value, len(self._values))

    def _operation(self, operation: Any) -> Operation:
        number, self._operations = self._operations, self._operations + 1
        attributes = {}
        for named in operation.attributes:
            name, attribute = (
                (named.name, named.attr) if hasattr(named, "attr") else (named, operation.attributes[named])
            )
            if operation.name == "stablehlo.constant" and name == "value":
                attributes[name] = self._constant(attribute)
            else:
                attributes[name] = read_attribute(operation.name, name, attribute)
        return Operation(
            number=number,
            kind=operation.name,
            where=_where(operation.location),
            operands=tuple(self._values[value] for value in operation.operands),
            results=tuple((self._number(value), read_type(value.type)) for value in operation.results),
            attributes=attributes,
            blocks=tuple(self.block(block) for region in operation.regions for block in region.blocks),
        )

    def _constant(self, attribute: Any) -> Any:
        if not isinstance(attribute, ir.DenseElementsAttr) and self._blobs is None:
            self._blobs = _blobs(self._module)
        return dense_array(attribute, self._blobs)


def _where(location: Any) -> str:
    """Return the name of a source location, empty if it has none."""
    return str(getattr(location, "name_str", ""))


def _blobs(module: Any) -> dict[str, bytes]:
    """Return the module's resources by name; MLIR's bindings offer them as text only."""
    text = module.operation.get_asm()
    start = text.rfind("{-#")
    if start < 0:
        return {}
    return {
        name: bytes.fromhex(digits[_ALIGNMENT_DIGITS:])
        for name, digits in _BLOB.findall(text, start)
        if len(digits) % 2 == 0
    }
