"""Plan which nodes ONNX Runtime runs, and in which parts: as few as can be, with few tensors between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16
from tunefarm_tuning.frontend.onnx.graph_reading import constant_nodes, names_read
from tunefarm_tuning.frontend.onnx.parts.cut import crossings
from tunefarm_tuning.frontend.onnx.parts.value_types import open_spec
from tunefarm_tuning.frontend.onnx.rules import operator_name
from tunefarm_tuning.workload.runtime_part import MAX_REASONS, NotCompiled, OpenSpec, RuntimePart

_TUNABLE = frozenset({
    "Attention", "Conv", "ConvInteger", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "GRU",
    "Gemm", "GroupQueryAttention", "LSTM", "MatMul", "MatMulInteger", "MatMulNBits", "MultiHeadAttention",
    "QAttention", "QGemm", "QLinearConv", "QLinearMatMul", "RNN",
})  # fmt: skip
"""Operators that take most of a network's time, and that tuning makes faster."""
DEPENDS = "reads values that are known only at run time"
"""The reason of a node that could be compiled if another node could."""
_RETRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is known of a graph after each of its nodes was imported by itself.

    Attributes:
        reasons: Why a node cannot be compiled, by its position.
        types: The types of the values, by name; None for one that nobody can infer.
    """

    reasons: Mapping[int, NotCompiled] = field(default_factory=dict)
    types: Mapping[str, onnx.TypeProto | None] = field(default_factory=dict)


def may_be_hybrid(model: onnx.ModelProto) -> bool:
    """Return whether ONNX Runtime can run parts of a model: on a CPU it does not compute in bfloat16."""
    return not uses_bfloat16(model.graph)


def plan_parts(model: onnx.ModelProto, survey: Survey) -> tuple[RuntimePart, ...]:
    """Return the parts of a model that ONNX Runtime runs; none if it would run all that tuning makes faster.

    Raises:
        InvalidModelError: unsupported-dtype, if a part would return no tensor of numbers.
    """
    graph = model.graph
    constants = constant_nodes(graph)
    left = set(survey.reasons) - constants
    if not left:
        return ()
    for _ in range(_RETRIES):
        levels = _levels(graph, constants, left)
        more = _islands(graph, constants, left, levels) or _makers_of_no_tensors(
            graph, constants, left, levels, survey
        )
        if not more:
            break
        left |= more
    else:
        left = set(range(len(graph.node))) - constants
    if not _has_kernels(graph, constants, left):
        return ()
    levels = _levels(graph, constants, left)
    nodes = [
        tuple(position for position in sorted(left) if levels[position] == level)
        for level in sorted({levels[position] for position in left})
    ]
    return tuple(
        _part(graph, positions, taken, given, survey)
        for positions, (taken, given) in zip(nodes, crossings(graph, nodes), strict=True)
    )


def _levels(graph: onnx.GraphProto, constants: set[int], left: set[int]) -> dict[int, int]:
    """Return the step in which each node runs: even steps are compiled, odd ones are ONNX Runtime's."""
    made_by: dict[str, int] = {}
    levels: dict[int, int] = {}
    for position, node in enumerate(graph.node):
        if position in constants:
            continue
        odd = int(position in left)
        level = odd
        for name in names_read(node):
            if name in made_by:
                before = levels[made_by[name]]
                level = max(level, before + (before % 2 != odd))
        levels[position] = level
        made_by.update(dict.fromkeys(node.output, position))
    return levels


def _islands(
    graph: onnx.GraphProto, constants: set[int], left: set[int], levels: Mapping[int, int]
) -> set[int]:
    """Return the nodes that could be compiled, but come after a part and have nothing to tune: a crossing costs more."""
    made_by: dict[str, int] = {}
    group: dict[int, int] = {}
    members: dict[int, set[int]] = {}
    for position, node in enumerate(graph.node):
        if position in constants or position in left or levels[position] == 0:
            continue
        neighbours = {
            group[made_by[name]]
            for name in names_read(node)
            if name in made_by and levels[made_by[name]] == levels[position]
        }
        joined = {position}.union(*(members.pop(neighbour) for neighbour in neighbours))
        members[position] = joined
        group.update(dict.fromkeys(joined, position))
        made_by.update(dict.fromkeys(node.output, position))
    return set().union(
        *(
            island
            for island in members.values()
            if not any(_is_tunable(graph.node[position]) for position in island)
        )
    )


def _makers_of_no_tensors(
    graph: onnx.GraphProto, constants: set[int], left: set[int], levels: Mapping[int, int], survey: Survey
) -> set[int]:
    """Return the compiled nodes that a value which is no tensor of numbers keeps apart from its readers or its maker."""
    made_by = {name: position for position, node in enumerate(graph.node) for name in node.output if name}
    more: set[int] = set()
    for position, node in enumerate(graph.node):
        if position in constants:
            continue
        for name in names_read(node):
            maker = made_by.get(name)
            if maker is None or maker in constants or open_spec(name, survey.types.get(name)) is not None:
                continue
            if position in left and maker not in left:
                more.add(maker)
            elif maker in left and position not in left:
                more.add(position)
            elif position in left and levels[maker] != levels[position]:
                between = range(levels[maker], levels[position])
                more |= {p for p, level in levels.items() if level in between and p not in left}
    return more


def _has_kernels(graph: onnx.GraphProto, constants: set[int], left: set[int]) -> bool:
    """Return whether something that tuning makes faster is left to compile."""
    return any(
        _is_tunable(node) for position, node in enumerate(graph.node) if position not in left | constants
    )


def _is_tunable(node: onnx.NodeProto) -> bool:
    return node.op_type in _TUNABLE


def _part(
    graph: onnx.GraphProto,
    positions: tuple[int, ...],
    taken: Sequence[str],
    given: Sequence[str],
    survey: Survey,
) -> RuntimePart:
    counts = Counter(operator_name(graph.node[position]) for position in positions)
    reasons = [survey.reasons[position] for position in positions if position in survey.reasons]
    reasons = [reason for reason in reasons if reason.reason != DEPENDS] or reasons
    return RuntimePart(
        nodes=positions,
        inputs=tuple(_spec(name, survey) for name in taken),
        outputs=tuple(_spec(name, survey) for name in given),
        operators=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        reasons=tuple(reasons[:MAX_REASONS]),
    )


def _spec(name: str, survey: Survey) -> OpenSpec:
    spec = open_spec(name, survey.types.get(name))
    if spec is None:
        kind = survey.types.get(name)
        form = (kind.WhichOneof("value") or "") if kind is not None else ""
        what = "a tensor of an unknown number of dimensions or of another dtype than numbers"
        if form and form != "tensor_type":
            what = f"a {form.removesuffix('_type').replace('_', ' ')}"
        raise InvalidModelError(
            f"'{clean(name, 60)}' is {what}: an artifact returns and passes on tensors of numbers only; leave it out of the "
            "model's outputs",
            code="unsupported-dtype",
            output=clean(name),
        )
    return spec
