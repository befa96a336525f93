"""Operators that call other graphs of the file, and variables.

A graph is converted anew at each call, so that it sees the constants and shapes of its arguments: a loop becomes as many
copies as it has rounds.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunefarm_convert.tflite.converter import Converter, OperatorContext, TensorOf, variable_name

_MAX_ROUNDS = 1024


def _arguments(op: OperatorContext, since: int = 0) -> list[TensorOf]:
    return [(op.values, index) for index in op.inputs()[since:]]


def _give(op: OperatorContext, results: list[TensorOf]) -> None:
    if len(results) != len(op.operator.outputs):
        raise op.bad_file(f"it has {len(op.operator.outputs)} outputs, but the graph gives {len(results)}")
    for index, (values, source) in zip(op.operator.outputs, results, strict=True):
        op.values.adopt(index, values, source)


def _if(op: OperatorContext) -> None:
    branches = [op.option("ThenSubgraphIndex"), op.option("ElseSubgraphIndex")]
    condition = op.values.constant(op.index(0))
    if condition is not None:
        _give(op, op.program.call(branches[0 if condition.any() else 1], _arguments(op, 1)))
        return
    taken, other = (op.program.call(number, _arguments(op, 1)) for number in branches)
    if len(taken) != len(op.operator.outputs) or len(taken) != len(other):
        raise op.bad_file("its two branches give other numbers of tensors than it has outputs")
    chosen = op.values.reshaped(op.index(0), [])
    for position, ((a, i), (b, j)) in enumerate(zip(taken, other, strict=True)):
        index = op.output(position)
        if a.shape(i) != b.shape(j):
            raise op.unsupported_form(
                f"its branches give shapes {list(a.shape(i))} and {list(b.shape(j))}, and the condition is "
                "computed by the graph"
            )
        op.values.set_shape(index, a.shape(i))
        op.finish(op.node("Where", chosen, a.get(i), b.get(j)), position=position)


def _while(op: OperatorContext) -> None:
    state = _arguments(op)
    for _ in range(_MAX_ROUNDS):
        ((values, index),) = op.program.call(op.option("CondSubgraphIndex"), state)
        condition = values.constant(index)
        if condition is None:
            raise op.unsupported_form(
                "the graph's inputs decide how often it runs; tunefarm supports loops whose number of rounds "
                "is fixed"
            )
        if not condition.any():
            _give(op, state)
            return
        state = op.program.call(op.option("BodySubgraphIndex"), state)
    raise op.unsupported_form(f"it runs more than {_MAX_ROUNDS} times")


def _call_once(op: OperatorContext) -> None:
    outer, op.program.initializes = op.program.initializes, True
    op.program.call(op.option("InitSubgraphIndex"), [])
    op.program.initializes = outer


def _variable(op: OperatorContext) -> None:
    op.values.name_variable(op.output(), variable_name(op.operator))


def _name(op: OperatorContext) -> str:
    name = op.values.variable_name(op.index(0))
    if not name:
        raise op.bad_file("its first input refers to no variable")
    return name


def _assign(op: OperatorContext) -> None:
    name, value = _name(op), op.index(1)
    if op.program.initializes:
        if op.values.constant(value) is None:
            raise op.unsupported_form("the first value of a variable is not a constant")
        if name not in op.program.states:  # a state is what the caller gives
            op.program.variables[name] = (op.values, value)
        return
    if name not in op.program.states:
        raise op.unsupported_form(
            "it sets a variable that the network does not read in its first graph; tunefarm supports state that the "
            "first graph both reads and sets"
        )
    op.program.variables[name] = (op.values, value)


def _read(op: OperatorContext) -> None:
    variable = op.program.variables.get(_name(op))
    if variable is None:
        raise op.unsupported_form("no graph sets the variable before the first call")
    op.values.adopt(op.output(), *variable)


def _composite(op: OperatorContext) -> None:
    """Convert the graph that says what a composite operator is made of."""
    _give(op, op.program.call(op.option("DecompositionSubgraphIndex", -1), _arguments(op)))


CONVERTERS: Mapping[str, Converter] = {
    "IF": _if,
    "WHILE": _while,
    "STABLEHLO_COMPOSITE": _composite,
    "CALL_ONCE": _call_once,
    "VAR_HANDLE": _variable,
    "ASSIGN_VARIABLE": _assign,
    "READ_VARIABLE": _read,
}
