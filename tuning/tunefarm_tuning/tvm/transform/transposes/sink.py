"""Transposes moved towards the end of a network, where fewer elements are moved then.

A network's layout is chosen operator by operator, and those without a rule for it (a pad, the reshapes of a shuffle of
channels, of heads) are left between two transposes, or keep all that follows in the layout of the file. Behind such an operator
a transpose meets the one that undoes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, static_shape
from tunefarm_tuning.tvm.transform.transposes.cancel import plain_transposes, transpose_axes
from tunefarm_tuning.tvm.transform.transposes.propagation import Moved, rule_of


def sink_transposes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with those transposes moved down that are fewer, or smaller, for it.

    Transposes that meet are moved together, or not at all. A network with branches stays as it is: what moves into one of
    them is not run each time.
    """
    clean = tvm.transform.Sequential(
        [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    )
    before = clean(plain_transposes(mod))
    if _has_branches(before):
        return before
    every = _Rewriter(before, lambda _: True)
    moved = rewrite_main(before, every)
    won = every.won(moved)
    if not won:
        return before
    if won != every.groups():
        moved = rewrite_main(before, _Rewriter(before, lambda number: every.group_of(number) in won))
    after = clean(plain_transposes(clean(moved)))
    return after if sum(_costs(after).values()) < sum(_costs(before).values()) else before


def _has_branches(mod: tvm.IRModule) -> bool:
    found: list[Any] = []
    relax.analysis.post_order_visit(
        mod["main"].body, lambda one: found.append(one) if isinstance(one, relax.If) else None
    )
    return bool(found)


def _costs(
    mod: tvm.IRModule, owner: Callable[[Any, Any], object] = lambda _var, _call: None
) -> Counter[object]:
    """Return how many elements the transposes move whose results are used, by whatever each belongs to."""
    costs: Counter[object] = Counter()
    used: set[Any] = set()
    body = mod["main"].body
    _use(body.body, used)
    for block in reversed(body.blocks):
        for binding in reversed(block.bindings):
            if binding.var in used:
                _use(binding.value, used)
                if transpose_axes(binding.value) is not None:
                    costs[owner(binding.var, binding.value)] += _cost(binding.value)
    return costs


def _cost(call: Any) -> int:
    """Return how many elements a transpose moves. One of a constant, or of axes of size 1, moves none."""
    axes, shape = transpose_axes(call), static_shape(call.args[0])
    if axes is None or shape is None or isinstance(call.args[0], tvm.ir.GenericConst):
        return 0
    long = [axis for axis in axes if shape[axis] > 1]
    return prod(shape) if long != sorted(long) else 0


def _use(expr: Any, used: set[Any]) -> None:
    relax.analysis.post_order_visit(expr, lambda one: used.add(one) if isinstance(one, relax.Var) else None)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    """Moves transposes as far down as there are rules for what reads them.

    Args:
        mod: What is rewritten.
        may_move: Asked of each transpose in it, by its number.
    """

    def __init__(self, mod: tvm.IRModule, may_move: Callable[[int], bool]) -> None:
        super().__init__(mod)
        self._may_move = may_move
        self._numbers: dict[
            Any, int
        ] = {}  # of what transposes are of, those that were made on the way included
        self._made: dict[Any, int] = {}  # of what rules had to transpose besides
        self._parents: list[int] = []
        self._costs: list[int] = []

    def group_of(self, number: int) -> int:
        """Return the lowest number of the transposes that one meets."""
        while self._parents[number] != number:
            number = self._parents[number]
        return number

    def groups(self) -> set[int]:
        return {self.group_of(number) for number in range(len(self._parents))}

    def won(self, made: tvm.IRModule) -> set[int]:
        """Return the groups that move fewer elements in what this has made of its module."""
        first: Counter[int | None] = Counter()
        for number, cost in enumerate(self._costs):
            first[self.group_of(number)] += cost
        then = _costs(made, lambda var, call: self._group(var if var in self._made else call.args[0]))
        return {group for group in self.groups() if then[group] < first[group]}

    def _group(self, expr: Any) -> int | None:
        number = self._made.get(expr, self._numbers.get(expr))
        return None if number is None else self.group_of(number)

    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        axes = transpose_axes(visited)
        if axes is not None:
            return self._transpose(visited, axes)
        rule = rule_of(visited)
        if rule is None or not visited.args:
            return visited
        first = visited.args[0]
        read = list(first) if isinstance(first, relax.Tuple) else list(visited.args)
        moved = [self._moved(one) for one in read]
        if all(one is None for one in moved):
            return visited
        number = self._join(*(self._numbers[one.source] for one in moved if one is not None))
        made = rule(visited, moved, lambda expr: self._emit(expr, number))
        if made is None:
            return visited
        if not isinstance(made.source.ty, relax.TupleType):
            return self._transposed(made.source, made.order, number)
        parts = [
            self.builder_.emit(relax.TupleGetItem(made.source, place))
            for place in range(len(made.source.ty.fields))
        ]
        return relax.Tuple([self.builder_.emit(self._transposed(one, made.order, number)) for one in parts])

    def visit_tuple_getitem_(self, item: Any) -> Any:
        visited = super().visit_tuple_getitem_(item)
        bound = self._bound(visited.tuple_value)
        return bound.fields[visited.index] if isinstance(bound, relax.Tuple) else visited

    def _transpose(self, call: Any, axes: Any) -> Any:
        number = len(self._parents)
        self._parents.append(number)
        self._costs.append(_cost(call))
        source = call.args[0]
        found = self._moved(source)
        if found is not None:
            joined = tuple(found.order[axis] for axis in axes)
            number = self._join(number, self._numbers[found.source])
            if joined == tuple(sorted(joined)):
                return found.source
            return self._transposed(found.source, joined, number)
        if isinstance(source, relax.Var) and self._may_move(number):
            self._numbers[source] = self._join(number, self._numbers.get(source, number))
        return call

    def _transposed(self, source: Any, order: tuple[int, ...], number: int) -> Any:
        self._numbers[source] = number
        return self.builder_.normalize(relax.op.permute_dims(source, list(order)))

    def _emit(self, expr: Any, number: int) -> Any:
        var = self.builder_.emit(expr)
        if transpose_axes(expr) is not None:
            self._made[var] = number
        return var

    def _join(self, *numbers: int) -> int:
        groups = {self.group_of(number) for number in numbers}
        for group in groups:
            self._parents[group] = min(groups)
        return min(groups)

    def _bound(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var):
            expr = self.lookup_binding(expr)
        return expr

    def _moved(self, expr: Any) -> Moved | None:
        bound = self._bound(expr)
        axes = transpose_axes(bound)
        if axes is None or bound.args[0] not in self._numbers:
            return None
        return Moved(source=bound.args[0], order=tuple(axes))
