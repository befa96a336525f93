"""The sections of a report about a network of several shapes, and its code for others."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tunefarm_app.report.sections import ReportRatio, ReportSection


class ReportShape(ReportSection):
    """A set of shapes that the artifact runs."""

    inputs: list[dict[str, Any]] = Field(description="Name, shape and element type of each input.")
    weight: int = Field(description="How often the user runs it, relative to the other sets.")
    tuned_sec: float = Field(description="Median seconds per inference of the artifact.")
    untuned_sec: float = Field(description="The same, untuned.")
    onnxruntime_sec: float | None = Field(description="The same of ONNX Runtime; null if not timed.")
    baselines_sec: dict[str, float] = Field(
        default_factory=dict, description="The same of other runtimes that were asked for and timed."
    )
    ratios: dict[str, ReportRatio] = Field(
        default_factory=dict,
        description="How many times as fast as `untuned`, `onnxruntime` and the other runtimes it is.",
    )
    batches: list[int] = Field(description="Smaller batch sizes that run here, filled up.")
    no_batches: str | None = Field(description="Why smaller batches do not run here; null if they do.")
    fallback: str | None = Field(description="Why its tuned kernels are left out; null if they are not.")


class ReportOpenDimension(ReportSection):
    """A dimension of any size in the code for all other shapes."""

    name: str = Field(description="Its name in `inputs`.")
    multiple: int = Field(description="What its sizes are multiples of.")
    least: int | None = Field(description="Smallest size; null if there is no limit.")
    most: int | None = Field(description="Largest size; null if there is no limit.")


class ReportOtherShapes(ReportSection):
    """The code for all shapes that have none of their own."""

    reason: str | None = Field(None, description="Why there is no such code; null if there is.")
    inputs: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Name, element type and shape of each input; a name in a shape stands for an open dimension.",
    )
    dimensions: list[ReportOpenDimension] = Field(default_factory=list, description="Open dimensions.")
    conditions: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Conditions that several dimensions have to meet together, each with its text.",
    )
    compared: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Shapes in which its outputs were compared with ONNX Runtime's, each with the largest errors.",
    )
    latency_sec: float | None = Field(
        None, description="Median seconds per inference in the most important shapes."
    )
