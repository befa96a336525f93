"""Convert a StableHLO program to an ONNX model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import onnx

from tunefarm_convert.onnx_writer import OnnxWriter, value_info
from tunefarm_convert.signatures import stablehlo_module
from tunefarm_convert.stablehlo.batch_norms import with_batch_norms
from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators import (
    control,
    convolutions,
    elementwise,
    indexing,
    matrices,
    ordering,
    reductions,
    shapes,
    windows,
)
from tunefarm_convert.stablehlo.program import (
    Block,
    BrokenOperandError,
    Operation,
    OtherType,
    Program,
    TensorType,
    Type,
    UnsupportedFormError,
    UnsupportedParts,
    bad_program,
)
from tunefarm_convert.stablehlo.values import Emitter, Value, Values, broken
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean, clean_message

CONVERTERS: Mapping[str, Converter] = {
    **control.CONVERTERS,
    **convolutions.CONVERTERS,
    **elementwise.CONVERTERS,
    **shapes.CONVERTERS,
    **indexing.CONVERTERS,
    **matrices.CONVERTERS,
    **ordering.CONVERTERS,
    **reductions.CONVERTERS,
    **windows.CONVERTERS,
}
_REGION_OPERATIONS = ("stablehlo.while", "stablehlo.case", "stablehlo.if")
"""Operations whose regions are converted; the regions of others are matched as a whole."""
_MAX_OPERATIONS = 200_000
"""Maximum number of operations; those in functions and loops count as often as they run."""
_MAX_CALL_DEPTH = 64


def convert_file(data: bytes) -> onnx.ModelProto:
    """Convert a StableHLO file: MLIR's text or bytecode, or a file of ``jax.export``.

    Raises:
        InvalidModelError: not-stablehlo, or a code of `convert`.
    """
    from tunefarm_convert.stablehlo.parser import parse_module, read_program

    module = parse_module(stablehlo_module(data))
    try:
        program = read_program(module)
    except (MemoryError, RecursionError, InvalidModelError):
        raise
    except Exception as error:
        # A damaged file may be parsed and contain invalid texts and numbers.
        raise bad_program(
            f"the file is probably damaged ({clean_message(error)}); export it again"
        ) from error
    return convert(program)


def convert(program: Program) -> onnx.ModelProto:
    """Convert a StableHLO program to ONNX. Equal programs give equal models.

    Inputs and outputs keep their order, shapes and dtypes.

    Raises:
        InvalidModelError: invalid-stablehlo, unsupported-operator, unsupported-dtype, unknown-dimension, zero-size,
            too-large.
    """
    try:
        return _Conversion(program).model()
    except (InvalidModelError, MemoryError):
        raise
    except Exception as error:
        # sizes, counts and names that no valid file has
        reason = clean_message(error, 200)
        raise bad_program(f"the StableHLO program is malformed: {reason}") from error


class _Conversion:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._writer = OnnxWriter("stablehlo")
        self._emit = Emitter(self._writer)
        self._unsupported = UnsupportedParts()
        self._num_operations = 0
        self._depth = 0

    def model(self) -> onnx.ModelProto:
        main = self._program.functions[self._program.main]
        for position, (_, type_) in enumerate(main.arguments):
            self._check_edge(f"input {position}", type_)
        self._note_unknown(main, set())
        types = [type_ for _, type_ in main.arguments if isinstance(type_, TensorType)]
        if len(types) != len(main.arguments):
            self._unsupported.raise_any()
        names = edge_names(self._program.input_names, len(types), "input", self._writer)
        arguments = tuple(
            self._emit.computed(name, type_.shape, type_.dtype)
            for name, type_ in zip(names, types, strict=True)
        )
        returned = self._run(main, arguments, {})
        self._unsupported.raise_any()
        for position, value in enumerate(returned):
            if 0 in value.shape:
                self._unsupported.add_text(f"output {position} is of no elements", "zero-size")
        self._unsupported.raise_any()
        output_names = edge_names(self._program.output_names, len(returned), "output", self._writer)
        outputs = [
            (self._emit.name(value), value_info(name, value.dtype, value.shape))
            for name, value in zip(output_names, returned, strict=True)
        ]
        inputs = [
            value_info(name, type_.dtype, type_.shape) for name, type_ in zip(names, types, strict=True)
        ]
        model = self._writer.model(inputs, outputs)
        with_batch_norms(model)
        return model

    def _check_edge(self, edge: str, type_: Type) -> None:
        if isinstance(type_, OtherType):
            self._unsupported.add_text(f"{edge} is of type {clean(type_.text, 80)}: {type_.why}", type_.code)
        elif isinstance(type_, TensorType) and 0 in type_.shape:
            self._unsupported.add_text(
                f"{edge} has the shape {list(type_.shape)}: there is nothing to compute", "zero-size"
            )
        elif not isinstance(type_, TensorType):
            self._unsupported.add_text(f"{edge} is a tuple", "unsupported-operator")

    def _note_unknown(self, block: Block, seen: set[str]) -> None:
        """Note all operations of unknown kinds that a block may reach, even if its conversion stops before them."""
        for operation in block.operations:
            if operation.kind not in CONVERTERS:
                self._unsupported.add(operation, "", "unsupported-operator")
            for name in ("callee", "decomposition"):
                called = str(operation.attributes.get(name, ""))
                if called in self._program.functions and called not in seen and operation.kind == "func.call":
                    seen.add(called)
                    self._note_unknown(self._program.functions[called], seen)
            if operation.kind in _REGION_OPERATIONS:
                for inner in operation.blocks:
                    self._note_unknown(inner, seen)

    def _call(self, name: str, values: Values) -> Values:
        if name not in self._program.functions:
            raise bad_program(f"it calls the function '{clean(name, 60)}', which is not in the module")
        if self._depth == _MAX_CALL_DEPTH:
            raise bad_program(f"its calls are more than {_MAX_CALL_DEPTH} deep, or endless")
        self._depth += 1
        try:
            return self._run(self._program.functions[name], values, {})
        finally:
            self._depth -= 1

    def _run(self, block: Block, values: Values, outer: Mapping[int, Value]) -> Values:
        known = {
            **outer,
            **{number: value for (number, _), value in zip(block.arguments, values, strict=True)},
        }
        for operation in block.operations:
            self._num_operations += 1
            if self._num_operations > _MAX_OPERATIONS:
                raise InvalidModelError(
                    f"the program runs more than {_MAX_OPERATIONS} operations, loops unrolled",
                    code="too-large",
                )
            operands = tuple(known[number] for number in operation.operands)
            results = self._converted(operation, operands, known)
            known.update(
                {number: value for (number, _), value in zip(operation.results, results, strict=True)}
            )
        return tuple(known[number] for number in block.returned)

    def _converted(
        self, operation: Operation, operands: Values, known: Mapping[int, Value]
    ) -> Sequence[Value]:
        self._writer.scope = f"{operation.kind.rpartition('.')[2]}_{operation.number}"
        op = OperatorContext(
            operation=operation,
            operands=operands,
            emit=self._emit,
            outer=known,
            run=lambda block, values: self._run(block, values, known),
            call=self._call,
        )
        try:
            for _, type_ in operation.results:
                _check_result(type_, operands)
            if operation.kind not in CONVERTERS:
                raise UnsupportedFormError("")
            results = CONVERTERS[operation.kind](op)
            _check_results(operation, results)
            return results
        except BrokenOperandError:
            pass
        except UnsupportedFormError as problem:
            self._unsupported.add(operation, problem.why, problem.code)
        except (InvalidModelError, MemoryError):
            raise
        except Exception as error:
            reason = clean_message(error, 200)
            raise bad_program(f"{operation.label}, is malformed: {reason}") from error
        return [_nothing(type_) for _, type_ in operation.results]


def _check_result(type_: Type, operands: Values) -> None:
    if isinstance(type_, OtherType):
        if any(operand.broken for operand in operands):
            raise BrokenOperandError
        raise UnsupportedFormError(f"its result is of type {clean(type_.text, 80)}: {type_.why}", type_.code)
    if not isinstance(type_, TensorType):
        raise UnsupportedFormError("its result is a tuple")


def _check_results(operation: Operation, results: Sequence[Value]) -> None:
    """Check a converter's results against the program's types. They differ because of a bug of ours or a bad file."""
    actual = [(value.shape, value.dtype) for value in results]
    declared = [(type_.shape, type_.dtype) for _, type_ in operation.results if isinstance(type_, TensorType)]
    if actual != declared:
        raise ValueError(f"it gives {actual}, but the program declares {declared}")


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
_TREE_KEY = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")
_TREE_PATH = re.compile(rf"\w*(?:{_TREE_KEY.pattern})*")


def edge_names(declared: Sequence[str], count: int, otherwise: str, writer: OnnxWriter) -> list[str]:
    """Return a name for each input (output): the module's own, or else `otherwise` and its number.

    JAX writes ``x`` for an argument, ``params['dense']['kernel']`` for one in a tree, ``result['logits']`` for a result.
    """
    wanted = [_plain_name(text) for text in declared] if len(declared) == count else [""] * count
    counts = Counter(wanted)
    return [
        writer.unique(name if name and counts[name] == 1 else f"{otherwise}_{position}")
        for position, name in enumerate(wanted)
    ]


def _plain_name(text: str) -> str:
    """Return a path in a tree as a name, ``params.dense.kernel``; empty for any other text."""
    if not _TREE_PATH.fullmatch(text):
        return ""
    head, *rest = re.split(r"(?=[.\[])", text, maxsplit=1)
    keys = ["".join(groups) for groups in _TREE_KEY.findall("".join(rest))]
    name = ".".join(part for part in ("" if head == "result" else head, *keys) if part)
    return name if _PLAIN_NAME.fullmatch(name) else ""


def _nothing(type_: Type) -> Value:
    return broken(type_.shape, type_.dtype) if isinstance(type_, TensorType) else broken((), "float32")
