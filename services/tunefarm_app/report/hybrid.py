"""What the report says of the parts of a network that ONNX Runtime runs, inside the artifact."""

from __future__ import annotations

from pydantic import Field

from tunefarm_app.report.sections import ReportSection
from tunefarm_text.quantities import percent, plural, seconds


class ReportNotCompiled(ReportSection):
    """A node that cannot be compiled."""

    operator: str = Field(description="Operator of the node.")
    node: str = Field(description="Name of the node in quotes, or its number.")
    reason: str = Field(description="Why it cannot be compiled.")


class ReportRuntimePart(ReportSection):
    """A part of the network that ONNX Runtime runs."""

    file: str = Field(description="Name of its ONNX model in the artifact.")
    nodes: int = Field(description="Number of its nodes.")
    operators: list[list[str | int]] = Field(description="Pairs of an operator and its count.")
    reasons: list[ReportNotCompiled] = Field(description="Its first nodes that cannot be compiled.")
    median_sec: float | None = Field(description="Seconds per inference; null if not timed.")
    share: float | None = Field(description="Its share of an inference's time, 0 to 1; null if not timed.")


class ReportHybrid(ReportSection):
    """Which part of the network ONNX Runtime runs, and its share of the time. The rest is compiled."""

    method: str = Field(description="How the parts were timed.")
    parts: list[ReportRuntimePart] = Field(description="The parts, in order of execution.")
    median_sec: float = Field(description="Seconds per inference of the whole network in this timing.")
    onnxruntime_share: float | None = Field(
        description="Share of the time in ONNX Runtime, 0 to 1; null if not timed."
    )
    not_timed: str | None = Field(description="Why the parts were not timed; null if they were.")


def hybrid_sentence(hybrid: ReportHybrid) -> str:
    """Return the summary's sentence about what ONNX Runtime runs."""
    nodes = sum(part.nodes for part in hybrid.parts)
    sentence = f"ONNX Runtime runs {plural(nodes, 'node')} of the network, which cannot be compiled, inside the artifact"
    if hybrid.onnxruntime_share is None:
        return f"{sentence}; their share of the time is not known: {hybrid.not_timed}."
    return f"{sentence}: {percent(hybrid.onnxruntime_share)} of the time ({seconds(hybrid.onnxruntime_share * hybrid.median_sec)})."
