"""Replace the products and the softmax of an attention by one kernel, where its scores are too many for the caches.

The pattern: ``matmul(softmax(steps(matmul(query, key))), value)`` in float32, of known sizes, whose scores nothing else reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.relax_graph import (
    entry_names,
    operator_name,
    rewrite_main,
    static_shape,
    tensor_dtype,
    uses_of,
    values_of,
)
from tunefarm_tuning.tvm.default_schedules.stage import Machine
from tunefarm_tuning.tvm.kernels.layers.attention import (
    MASKS,
    OPERATORS,
    Attention,
    Step,
    Tiles,
    attention_kernel,
)
from tunefarm_tuning.tvm.kernels.layers.written import DTYPE

_LEAST_SCORES = 1 << 19
"""Fewer scores stay in the caches from one kernel to the next. The same on all CPUs, since a farm shares the tasks of a model."""
_LEAST_ROWS, _LEAST_KEYS = 16, 64
_MOST_STEPS = 8
_PRODUCT = "relax.matmul"
_STEPS = {f"relax.{name}": name for name in OPERATORS}
_EITHER_WAY = frozenset({"multiply", "add"})


def fuse_attention(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Return the module with its large attentions as one kernel each."""
    rewritten = rewrite_main(mod, _AttentionRewriter(mod, Machine.of(target)))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(entry_names(rewritten))(rewritten)
    return result


@dataclass(frozen=True, slots=True)
class _Match:
    """An attention in the graph: its shapes, and the kernel's arguments in order."""

    attention: Attention
    arguments: list[Any]


@relax.expr_functor.mutator
class _AttentionRewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, machine: Machine) -> None:
        super().__init__(mod)
        self._machine = machine
        self._values: dict[Any, Any] = {}
        self._uses: Counter[Any] = Counter()
        for name in entry_names(mod):
            self._values |= values_of(mod[name])
            self._uses += uses_of(mod[name])

    def visit_call_(self, call: Any) -> Any:
        match = self._match(call)
        if match is None:
            return super().visit_call_(call)
        lanes, core = self._machine.lanes(DTYPE), self._machine.core
        tiles = Tiles.of(
            match.attention,
            lanes=lanes,
            registers=self._machine.registers,
            second_cache_bytes=core.second_cache_bytes // 2,
        )
        kernel = self.builder_.add_func(attention_kernel(match.attention, tiles), "attention")
        arguments = [self.visit_expr(argument) for argument in match.arguments]
        return relax.call_tir(kernel, arguments, call.ty)

    def _match(self, call: Any) -> _Match | None:
        """Return a product as the last one of a large attention; None for any other call."""
        if not _is_product(call):
            return None
        softmax, zero_without_keys = self._softmax(call.args[0])
        of_softmax = None if softmax is None else static_shape(softmax)
        if of_softmax is None or int(softmax.attrs.axis) not in (-1, len(of_softmax) - 1):
            return None
        scores = softmax.args[0]
        steps: list[Step] = []
        operands: list[Any] = []
        while len(steps) < _MOST_STEPS and (written := self._step(self._before_reshape(scores))) is not None:
            scores, step, tensors = written
            steps.insert(0, step)
            operands[:0] = tensors
        product = self._read_once(self._before_reshape(scores))
        if not _is_product(product):
            return None
        arguments = [*product.args, call.args[1], *operands]
        shapes = [static_shape(argument) for argument in (*arguments, product, call)]
        query, key, value, *_, of_scores, result = (shape or () for shape in shapes)
        if min(map(len, (query, key, value, result))) < 2:
            return None
        attention = Attention(
            query=query,
            key=key,
            value=value,
            steps=tuple(steps),
            result_heads=result[:-2],
            zero_without_keys=zero_without_keys,
        )
        fits = None not in shapes and attention.scores == of_scores and attention.result == result
        fits = fits and prod(query[:-2]) == prod(result[:-2])
        return _Match(attention, arguments) if fits and _pays(attention) else None

    def _softmax(self, shares: Any) -> tuple[Any, bool]:
        """Return the softmax that a value is, None for any other value, and whether what is not a number is replaced by 0.

        PyTorch's exporter writes ``where(isnan(softmax), 0, softmax)``.
        """
        value = self._read_once(self._before_reshape(shares))
        replaced = operator_name(value) == "relax.where"
        if replaced:
            condition, zero, softmax = value.args
            check = self._read_once(condition)
            if operator_name(check) != "relax.isnan" or _number(zero) != 0.0:
                return None, False
            if not check.args[0].same_as(softmax) or self._uses[softmax] != 2:
                return None, False
            value = self._values.get(softmax)
        return (value, replaced) if operator_name(value) == "relax.nn.softmax" else (None, False)

    def _before_reshape(self, expr: Any) -> Any:
        """Return what a reshape of the heads alone, which is read once, takes; any other expression as it is."""
        value = self._read_once(expr)
        if operator_name(value) != "relax.reshape":
            return expr
        shape, before = static_shape(value), static_shape(value.args[0])
        keeps_rows = shape is not None and before is not None and shape[-2:] == before[-2:]
        return value.args[0] if keeps_rows and len(before or ()) >= 2 else expr

    def _step(self, scores: Any) -> tuple[Any, Step, list[Any]] | None:
        """Return a step on scores: what it takes, the step, and its tensor if any; None for any other value."""
        value = self._read_once(scores)
        shape, name = static_shape(value) if value is not None else None, operator_name(value)
        if shape is None or tensor_dtype(value) != DTYPE:
            return None
        for taken, operand, operator, number in _operands(value, name):
            of_operand = static_shape(operand)
            # The scores are what keeps its shape, and comes from a product.
            if static_shape(taken) != shape or of_operand is None or not self._is_computed(taken):
                continue
            plain = number if operator in MASKS else _number(operand)
            has_tensor = operator in MASKS or plain is None
            step = Step(
                operator=operator,
                number=plain,
                shape=of_operand if has_tensor else None,
                heads=shape[:-2],
            )
            return taken, step, [operand] if has_tensor else []
        return None

    def _is_computed(self, scores: Any, most_steps: int = _MOST_STEPS) -> bool:
        """Return whether a value, which nothing else reads, is a product, or a few steps on one."""
        value = self._read_once(self._before_reshape(scores))
        name = operator_name(value)
        if name == _PRODUCT:
            return True
        return most_steps > 0 and any(
            self._is_computed(taken, most_steps - 1) for taken, *_ in _operands(value, name)
        )

    def _read_once(self, expr: Any) -> Any:
        """Return the value of a variable that is read once; None for anything else."""
        return self._values.get(expr) if isinstance(expr, relax.Var) and self._uses[expr] == 1 else None


def _operands(value: Any, name: str) -> Iterator[tuple[Any, Any, str, float | None]]:
    """Yield what may be the scores that a step takes, its other operand or mask, its operator, and the number of a mask."""
    if name == "relax.where":
        mask, chosen, other = value.args
        if (number := _number(other)) is not None:
            yield chosen, mask, "keep", number
        if (number := _number(chosen)) is not None:
            yield other, mask, "replace", number
    elif name in _STEPS:
        yield value.args[0], value.args[1], _STEPS[name], None
        if _STEPS[name] in _EITHER_WAY:
            yield value.args[1], value.args[0], _STEPS[name], None


def _is_product(call: Any) -> bool:
    return operator_name(call) == _PRODUCT and all(
        tensor_dtype(value) == DTYPE for value in (call, *call.args)
    )


def _number(operand: Any) -> float | None:
    """Return a constant of one element as a number; None for any other value."""
    if not isinstance(operand, tvm.ir.GenericConst) or any(size != 1 for size in operand.value.shape):
        return None
    return float(operand.value.numpy().item())


def _pays(attention: Attention) -> bool:
    *_, rows, keys = attention.scores
    return rows >= _LEAST_ROWS and keys >= _LEAST_KEYS and prod(attention.scores) >= _LEAST_SCORES
