"""Calls, which are inlined, and loops, which are unrolled if their number of iterations is constant."""

from __future__ import annotations

from collections.abc import Mapping

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators.functions import FUNCTIONS
from tunefarm_convert.stablehlo.operators.ordering import top_k
from tunefarm_convert.stablehlo.program import UnsupportedFormError
from tunefarm_convert.stablehlo.values import Value, Values, one_number

_MAX_ROUNDS = 4096
"""Maximum number of iterations of a loop that is unrolled."""
_WITHOUT_EFFECT = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
    "annotate_device_placement", "MoveToHost", "MoveToDevice", "xla.sdy.FuncResultSharding",
})  # fmt: skip


def is_harmless(target: str) -> bool:
    """Return whether a custom call names a function of XLA itself or one without effect, not a function of the process."""
    return target in _WITHOUT_EFFECT or target.replace("mhlo.", "chlo.") in FUNCTIONS


def _named(op: OperatorContext, name: str) -> list[Value] | None:
    """Return the result of a function of `FUNCTIONS`; None if it has none of that name."""
    name = name.replace("mhlo.", "chlo.")
    if name in FUNCTIONS and len(op.operands) == 1:
        return [FUNCTIONS[name](op.emit, op.operands[0])]
    return None


def _composite(op: OperatorContext) -> Values | list[Value]:
    name = str(op.attribute("name"))
    if name == "chlo.top_k":
        return top_k(op)
    return _named(op, name) or op.call(str(op.attribute("decomposition")), op.operands)


def _custom_call(op: OperatorContext) -> Values | list[Value]:
    target = str(op.attribute("call_target_name"))
    if target in _WITHOUT_EFFECT and len(op.operands) == 1 and op.result().shape == op.operands[0].shape:
        return op.operands
    results = _named(op, target) if target.startswith("mhlo.") else None
    if results is None:
        raise UnsupportedFormError(f"of '{target}', a function that is not in the file")
    return results


def _while(op: OperatorContext) -> Values:
    condition, body = op.operation.blocks
    values = op.operands
    for _ in range(_MAX_ROUNDS + 1):  # the condition is evaluated once more than the body
        (going_on,) = op.run(condition, values)
        op.emit.check(going_on)
        number = one_number(going_on)
        if number is None:
            raise UnsupportedFormError(
                "its number of rounds is computed from the inputs; tunefarm unrolls loops"
            )
        if not number:
            return values
        values = op.run(body, values)
    raise UnsupportedFormError(f"it runs more than {_MAX_ROUNDS} times; tunefarm unrolls loops")


def _case(op: OperatorContext) -> Values:
    op.emit.check(op.operands[0])
    number = one_number(op.operands[0])
    if number is None:
        raise UnsupportedFormError("the branch is computed from the inputs")
    blocks = op.operation.blocks
    if op.operation.kind == "stablehlo.if":
        return op.run(blocks[0 if number else 1], ())
    return op.run(blocks[int(number) if 0 <= number < len(blocks) else -1], ())


CONVERTERS: Mapping[str, Converter] = {
    "func.call": lambda op: op.call(str(op.attribute("callee")), op.operands),
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.while": _while,
    "stablehlo.case": _case,
    "stablehlo.if": _case,
}
