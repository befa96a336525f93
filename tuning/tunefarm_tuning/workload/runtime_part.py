"""`RuntimePart`: a part of a network that is not compiled: ONNX Runtime runs it inside the artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_tuning.core.json_fields import JsonFields

MAX_REASONS = 5
"""The most reasons that are kept of a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpec(JsonFields):
    """Name, shape and dtype of a tensor that may have dimensions which depend on values.

    Attributes:
        name: The tensor's name: the model's text.
        shape: Its dimensions; None for one that is known at run time only.
        dtype: Its dtype, as numpy names it.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    @property
    def is_open(self) -> bool:
        """Whether a dimension depends on values."""
        return None in self.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompiled(JsonFields):
    """Why a node is not compiled.

    Attributes:
        operator: The node's operator.
        node: The node's name, or its number in the file if it has none. Untrusted text, cleaned.
        reason: A sentence.
    """

    operator: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePart(JsonFields):
    """A part of a network that ONNX Runtime runs.

    Attributes:
        nodes: Positions of its nodes in the graph, with the inputs bound and nothing inside of other graphs counted.
        inputs: What it takes from the rest of the network, in order.
        outputs: What the rest of the network takes of it, in order.
        operators: Names of its operators and how often each occurs, the most frequent first.
        reasons: Why it is not compiled: of its first nodes that cannot be, at most `MAX_REASONS`.
    """

    nodes: tuple[int, ...]
    inputs: tuple[OpenSpec, ...]
    outputs: tuple[OpenSpec, ...]
    operators: tuple[tuple[str, int], ...]
    reasons: tuple[NotCompiled, ...]


def runtime_warning(parts: Sequence[RuntimePart]) -> str:
    """Return the sentence about a network's parts that ONNX Runtime runs; empty if it has none."""
    if not parts:
        return ""
    count = sum(len(part.nodes) for part in parts)
    first = parts[0].reasons[0]
    more = sum(len(part.reasons) for part in parts) - 1
    return (
        f"ONNX Runtime runs {count} of the network's nodes inside the artifact, in {len(parts)} "
        f"{'part' if len(parts) == 1 else 'parts'}: node {first.node} ({first.operator}) {first.reason}"
        f"{f', and {more} more nodes cannot be compiled either' if more else ''}; the rest is compiled and tuned"
    )
