"""Transpose propagation towards the end: move transposes below other operators if they then move fewer elements.

The layout of a network is chosen operator by operator. An operator without a layout rule (a pad, the reshapes of a channel shuffle or
of attention heads) is left between two transposes, or keeps all that follows in the layout of the file. A transpose that moves
below such an operator meets the one that undoes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, static_shape
from tunefarm_tuning.tvm.transform.transposes.cancel import cancel_transposes, transpose_axes
from tunefarm_tuning.tvm.transform.transposes.rules import Transposed, rule_of


def propagate_transposes_down(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with transposes moved down if they then become fewer or move fewer elements.

    Transposes that meet form a group: all of a group move, or none. A network with branches (``If``) stays as it is, since a
    branch is not run each time.
    """
    clean_up = tvm.transform.Sequential(
        [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    )
    before = clean_up(cancel_transposes(mod))
    if _has_branches(before):
        return before
    # First move all, to find the groups that gain; then move only those groups.
    trial = _DownPropagation(before, lambda _: True)
    moved = rewrite_main(before, trial)
    gaining = trial.gaining_groups(moved)
    if not gaining:
        return before
    if gaining != trial.groups():
        moved = rewrite_main(
            before, _DownPropagation(before, lambda transpose: trial.group_of(transpose) in gaining)
        )
    after = clean_up(cancel_transposes(clean_up(moved)))
    return after if sum(moved_elements(after).values()) < sum(moved_elements(before).values()) else before


def _has_branches(mod: tvm.IRModule) -> bool:
    branches: list[Any] = []
    relax.analysis.post_order_visit(
        mod["main"].body, lambda node: branches.append(node) if isinstance(node, relax.If) else None
    )
    return bool(branches)


def moved_elements(
    mod: tvm.IRModule, group_of: Callable[[Any, Any], object] = lambda _var, _call: None
) -> Counter[object]:
    """Return the number of elements that a network's transposes move, by group; unread results do not count.

    `group_of` gets the variable that a transpose is bound to, and its call.
    """
    elements: Counter[object] = Counter()
    used: set[Any] = set()
    body = mod["main"].body
    _add_variables(body.body, used)
    for block in reversed(body.blocks):
        for binding in reversed(block.bindings):
            if binding.var in used:
                _add_variables(binding.value, used)
                if transpose_axes(binding.value) is not None:
                    elements[group_of(binding.var, binding.value)] += _elements_moved_by(binding.value)
    return elements


def _elements_moved_by(call: Any) -> int:
    """Return how many elements a transpose moves: none if its operand is a constant, or all axes that it moves have size 1."""
    axes, shape = transpose_axes(call), static_shape(call.args[0])
    if axes is None or shape is None or isinstance(call.args[0], tvm.ir.GenericConst):
        return 0
    long_axes = [axis for axis in axes if shape[axis] > 1]
    return prod(shape) if long_axes != sorted(long_axes) else 0


def _add_variables(expr: Any, variables: set[Any]) -> None:
    relax.analysis.post_order_visit(
        expr, lambda node: variables.add(node) if isinstance(node, relax.Var) else None
    )


@relax.expr_functor.mutator
class _DownPropagation(relax.PyExprMutator):  # type: ignore[misc]
    """Moves transposes down as far as there are rules for their readers, if `may_move` allows it for the transpose's number.

    Transposes are numbered in program order. A group is named by its lowest number.
    """

    def __init__(self, mod: tvm.IRModule, may_move: Callable[[int], bool]) -> None:
        super().__init__(mod)
        self._may_move = may_move
        self._number_of_source: dict[Any, int] = {}  # by the transposed variable, new ones included
        self._number_of_added: dict[Any, int] = {}  # by the variable of a transpose that a rule added
        self._parents: list[int] = []  # the groups, as a union-find forest over the numbers
        self._elements: list[int] = []  # elements that each transpose moved before

    def group_of(self, number: int) -> int:
        """Return the group of a transpose."""
        while self._parents[number] != number:
            number = self._parents[number]
        return number

    def groups(self) -> set[int]:
        """Return all groups."""
        return {self.group_of(number) for number in range(len(self._parents))}

    def gaining_groups(self, rewritten: tvm.IRModule) -> set[int]:
        """Return the groups that move fewer elements in the rewritten network."""
        before: Counter[int | None] = Counter()
        for number, elements in enumerate(self._elements):
            before[self.group_of(number)] += elements
        after = moved_elements(
            rewritten,
            lambda var, call: self._group_of_transpose(var if var in self._number_of_added else call.args[0]),
        )
        return {group for group in self.groups() if after[group] < before[group]}

    def _group_of_transpose(self, expr: Any) -> int | None:
        number = self._number_of_added.get(expr, self._number_of_source.get(expr))
        return None if number is None else self.group_of(number)

    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        axes = transpose_axes(visited)
        if axes is not None:
            return self._visit_transpose(visited, axes)
        rule = rule_of(visited)
        if rule is None or not visited.args:
            return visited
        first = visited.args[0]
        operands = list(first) if isinstance(first, relax.Tuple) else list(visited.args)
        transposed = [self._as_transposed(operand) for operand in operands]
        if all(operand is None for operand in transposed):
            return visited
        group = self._join(
            *(self._number_of_source[operand.source] for operand in transposed if operand is not None)
        )
        result = rule(visited, transposed, lambda expr: self._emit(expr, group))
        if result is None:
            return visited
        if not result.order:
            return result.source
        if not isinstance(result.source.ty, relax.TupleType):
            return self._transpose(result.source, result.order, group)
        fields = [
            self.builder_.emit(relax.TupleGetItem(result.source, index))
            for index in range(len(result.source.ty.fields))
        ]
        return relax.Tuple(
            [self.builder_.emit(self._transpose(field, result.order, group)) for field in fields]
        )

    def visit_tuple_getitem_(self, item: Any) -> Any:
        visited = super().visit_tuple_getitem_(item)
        value = self._value_of(visited.tuple_value)
        return value.fields[visited.index] if isinstance(value, relax.Tuple) else visited

    def _visit_transpose(self, call: Any, axes: Any) -> Any:
        number = len(self._parents)
        self._parents.append(number)
        self._elements.append(_elements_moved_by(call))
        operand = call.args[0]
        inner = self._as_transposed(operand)
        if inner is not None:
            joined = tuple(inner.order[axis] for axis in axes)
            group = self._join(number, self._number_of_source[inner.source])
            if joined == tuple(sorted(joined)):
                return inner.source
            return self._transpose(inner.source, joined, group)
        if isinstance(operand, relax.Var) and self._may_move(number):
            self._number_of_source[operand] = self._join(number, self._number_of_source.get(operand, number))
        return call

    def _transpose(self, source: Any, order: tuple[int, ...], number: int) -> Any:
        self._number_of_source[source] = number
        return self.builder_.normalize(relax.op.permute_dims(source, list(order)))

    def _emit(self, expr: Any, number: int) -> Any:
        var = self.builder_.emit(expr)
        if transpose_axes(expr) is not None:
            self._number_of_added[var] = number
        return var

    def _join(self, *numbers: int) -> int:
        """Merge the groups of some transposes, and return the merged group."""
        groups = {self.group_of(number) for number in numbers}
        for group in groups:
            self._parents[group] = min(groups)
        return min(groups)

    def _value_of(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var):
            expr = self.lookup_binding(expr)
        return expr

    def _as_transposed(self, expr: Any) -> Transposed | None:
        """Return an operand as the movable transpose of a source; None if it is no such transpose."""
        value = self._value_of(expr)
        axes = transpose_axes(value)
        if axes is None or value.args[0] not in self._number_of_source:
            return None
        return Transposed(source=value.args[0], order=tuple(axes))
