"""A StableHLO program becomes an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from tunefarm_convert.onnx_writer import OnnxWriter
from tunefarm_convert.stablehlo.batch_norms import with_batch_norms
from tunefarm_convert.stablehlo.names import edge_names
from tunefarm_convert.stablehlo.operators import (
    control,
    convolutions,
    elementwise,
    forms,
    indexing,
    matrices,
    ordering,
    reductions,
    windows,
)
from tunefarm_convert.stablehlo.problems import Problems
from tunefarm_convert.stablehlo.program import (
    Block,
    BrokenOperandError,
    Operation,
    OtherType,
    Program,
    TensorType,
    Type,
    UnsupportedFormError,
    bad_program,
)
from tunefarm_convert.stablehlo.step import Converter, Step
from tunefarm_convert.stablehlo.values import Emitter, Value, Values, broken, onnx_type
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean

CONVERTERS: Mapping[str, Converter] = {
    **control.CONVERTERS,
    **convolutions.CONVERTERS,
    **elementwise.CONVERTERS,
    **forms.CONVERTERS,
    **indexing.CONVERTERS,
    **matrices.CONVERTERS,
    **ordering.CONVERTERS,
    **reductions.CONVERTERS,
    **windows.CONVERTERS,
}
_INNER = ("stablehlo.while", "stablehlo.case", "stablehlo.if")
"""Whose inner programs are converted; those of others are looked at as a whole."""
_MOST_STEPS = 200_000
"""Operations that are converted, those of calls and loops as often as they run."""
_DEEPEST_CALL = 64


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
        # Sizes, counts and names that fit nothing that an honest file says.
        reason = clean(" ".join(str(error).split()) or type(error).__name__, 200)
        raise bad_program(f"the StableHLO program is malformed: {reason}") from error


class _Conversion:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._writer = OnnxWriter("stablehlo")
        self._emit = Emitter(self._writer)
        self._problems = Problems()
        self._steps = 0
        self._depth = 0

    def model(self) -> onnx.ModelProto:
        main = self._program.functions[self._program.main]
        for position, (_, type_) in enumerate(main.arguments):
            self._check_edge(f"input {position}", type_)
        self._note_unknown(main, set())
        types = [type_ for _, type_ in main.arguments if isinstance(type_, TensorType)]
        if len(types) != len(main.arguments):
            self._problems.raise_any()
        names = edge_names(self._program.input_names, len(types), "input", self._writer)
        arguments = tuple(
            self._emit.computed(name, type_.shape, type_.dtype)
            for name, type_ in zip(names, types, strict=True)
        )
        returned = self._run(main, arguments, {})
        self._problems.raise_any()
        for position, value in enumerate(returned):
            if 0 in value.shape:
                self._problems.add_text(f"output {position} is of no elements", "zero-size")
        self._problems.raise_any()
        output_names = edge_names(self._program.output_names, len(returned), "output", self._writer)
        outputs: dict[str, onnx.ValueInfoProto] = {}
        for name, value in zip(output_names, returned, strict=True):
            tensor = self._emit.name(value)
            if tensor in outputs:
                tensor = self._writer.node("Identity", [tensor])
            outputs[tensor] = _info(name, value.shape, value.dtype)
        inputs = [_info(name, one.shape, one.dtype) for name, one in zip(names, types, strict=True)]
        model = self._writer.model(inputs, outputs)
        with_batch_norms(model)
        return model

    def _check_edge(self, what: str, type_: Type) -> None:
        if isinstance(type_, OtherType):
            self._problems.add_text(f"{what} is of type {clean(type_.text, 80)}: {type_.why}", type_.code)
        elif isinstance(type_, TensorType) and 0 in type_.shape:
            self._problems.add_text(
                f"{what} has the shape {list(type_.shape)}: there is nothing to compute", "zero-size"
            )
        elif not isinstance(type_, TensorType):
            self._problems.add_text(f"{what} is a tuple", "unsupported-operator")

    def _note_unknown(self, block: Block, seen: set[str]) -> None:
        """Note the operations of no known kind that a block reaches, also where it is not run to the end."""
        for operation in block.operations:
            if operation.kind not in CONVERTERS:
                self._problems.add(operation, "", "unsupported-operator")
            for name in ("callee", "decomposition"):
                called = str(operation.attributes.get(name, ""))
                if called in self._program.functions and called not in seen and operation.kind == "func.call":
                    seen.add(called)
                    self._note_unknown(self._program.functions[called], seen)
            if operation.kind in _INNER:
                for inner in operation.blocks:
                    self._note_unknown(inner, seen)

    def _call(self, name: str, values: Values) -> Values:
        if name not in self._program.functions:
            raise bad_program(f"it calls the function '{clean(name, 60)}', which is not in the module")
        if self._depth == _DEEPEST_CALL:
            raise bad_program(f"its calls are more than {_DEEPEST_CALL} deep, or have no end")
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
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise InvalidModelError(
                    f"the program runs more than {_MOST_STEPS} operations, loops unrolled", code="too-large"
                )
            operands = tuple(known[number] for number in operation.operands)
            made = self._converted(operation, operands, known)
            known.update({number: value for (number, _), value in zip(operation.results, made, strict=True)})
        return tuple(known[number] for number in block.returned)

    def _converted(
        self, operation: Operation, operands: Values, known: Mapping[int, Value]
    ) -> Sequence[Value]:
        self._writer.place = f"{operation.kind.rpartition('.')[2]}_{operation.number}"
        step = Step(
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
            made = CONVERTERS[operation.kind](step)
            _check_made(operation, made)
            return made
        except BrokenOperandError:
            pass
        except UnsupportedFormError as problem:
            self._problems.add(operation, problem.why, problem.code)
        except (InvalidModelError, MemoryError):
            raise
        except Exception as error:
            reason = clean(" ".join(str(error).split()) or type(error).__name__, 200)
            raise bad_program(f"{operation.place}, is malformed: {reason}") from error
        return [_nothing(type_) for _, type_ in operation.results]


def _check_result(type_: Type, operands: Values) -> None:
    if isinstance(type_, OtherType):
        if any(operand.broken for operand in operands):
            raise BrokenOperandError
        raise UnsupportedFormError(f"its result is of type {clean(type_.text, 80)}: {type_.why}", type_.code)
    if not isinstance(type_, TensorType):
        raise UnsupportedFormError("its result is a tuple")


def _check_made(operation: Operation, made: Sequence[Value]) -> None:
    """Check that a converter made what the program says: by a mistake of ours, or as the file breaks the rules."""
    found = [(value.shape, value.dtype) for value in made]
    said = [(one.shape, one.dtype) for _, one in operation.results if isinstance(one, TensorType)]
    if found != said:
        raise ValueError(f"it makes {found}, where the program says {said}")


def _nothing(type_: Type) -> Value:
    return broken(type_.shape, type_.dtype) if isinstance(type_, TensorType) else broken((), "float32")


def _info(name: str, shape: Sequence[int], dtype: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx_type(dtype), list(shape))
