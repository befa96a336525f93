"""Calls, which are put in the place of what calls them, and loops, which are unrolled where their count is known."""

from __future__ import annotations

from collections.abc import Mapping

from tunefarm_convert.stablehlo.operators.functions import FUNCTIONS
from tunefarm_convert.stablehlo.operators.ordering import top_k
from tunefarm_convert.stablehlo.program import UnsupportedFormError
from tunefarm_convert.stablehlo.step import Converter, Step
from tunefarm_convert.stablehlo.values import Value, Values, one_number

_MOST_ROUNDS = 4096
"""Of a loop that is unrolled."""
_WITHOUT_EFFECT = frozenset(
    {
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "LayoutConstraint",
        "annotate_device_placement",
        "MoveToHost",
        "MoveToDevice",
        "xla.sdy.FuncResultSharding",
    }
)


def is_harmless(target: str) -> bool:
    """Tell whether a custom call is of a function that XLA has in itself, or that does nothing: none of the process's."""
    return target in _WITHOUT_EFFECT or target.replace("mhlo.", "chlo.") in FUNCTIONS


def _call(step: Step) -> Values:
    return step.call(str(step.attribute("callee")), step.operands)


def _named(step: Step, name: str) -> list[Value] | None:
    """Return what a function that has a name with us makes; None where it has none."""
    name = name.replace("mhlo.", "chlo.")
    if name in FUNCTIONS and len(step.operands) == 1:
        return [FUNCTIONS[name](step.emit, step.operands[0])]
    return None


def _composite(step: Step) -> Values | list[Value]:
    name = str(step.attribute("name"))
    if name == "chlo.top_k":
        return top_k(step)
    return _named(step, name) or step.call(str(step.attribute("decomposition")), step.operands)


def _custom_call(step: Step) -> Values | list[Value]:
    target = str(step.attribute("call_target_name"))
    if (
        target in _WITHOUT_EFFECT
        and len(step.operands) == 1
        and step.result().shape == step.operands[0].shape
    ):
        return step.operands
    found = _named(step, target) if target.startswith("mhlo.") else None
    if found is None:
        raise UnsupportedFormError(f"of '{target}', a function that is not in the file")
    return found


def _while(step: Step) -> Values:
    condition, body = step.operation.blocks
    values = step.operands
    for _ in range(_MOST_ROUNDS + 1):  # the condition is asked once more than the body is run
        (going_on,) = step.run(condition, values)
        step.emit.check(going_on)
        number = one_number(going_on)
        if number is None:
            raise UnsupportedFormError(
                "how often it runs is computed from the inputs; tunefarm unrolls loops"
            )
        if not number:
            return values
        values = step.run(body, values)
    raise UnsupportedFormError(f"it runs more than {_MOST_ROUNDS} times; tunefarm unrolls loops")


def _case(step: Step) -> Values:
    step.emit.check(step.operands[0])
    number = one_number(step.operands[0])
    if number is None:
        raise UnsupportedFormError("which branch is taken is computed from the inputs")
    blocks = step.operation.blocks
    if step.operation.kind == "stablehlo.if":
        return step.run(blocks[0 if number else 1], ())
    return step.run(blocks[int(number) if 0 <= number < len(blocks) else -1], ())


CONVERTERS: Mapping[str, Converter] = {
    "func.call": _call,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.while": _while,
    "stablehlo.case": _case,
    "stablehlo.if": _case,
}
