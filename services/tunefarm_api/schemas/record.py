"""Schemas of tuning records and workloads."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tunefarm_api.schemas.base import Output


class Record(Output):
    """A measured fact. It holds for its workload, target, device model and toolchain together."""

    id: str = Field(description="Its identity.")
    workload_key: str = Field(description="Content hash of the computation.")
    target_key: str = Field(description="What was compiled for.")
    device_model: str = Field(description="What it was measured on.")
    toolchain: str = Field(description="The compiler version.")
    space_key: str = Field(description="The config space that the config is a point of.")
    config: list[Any] = Field(description="The config: sketch and decisions.")
    outcome: str = Field(description="`ok`, or the class of failure.")
    cost_sec: float | None = Field(description="Median seconds per call; null unless ok.")
    confirmed: bool = Field(
        False,
        description="Whether the config was measured again here, side by side with the task's other best.",
    )
    superseded: bool = Field(
        False, description="Whether a later confirmation of the same config counts in its place."
    )
    samples_sec: list[float] = Field(description="The raw samples, seconds per call.")
    build_sec: float = Field(description="Seconds of building.")
    measured_at: float = Field(description="When it was measured, Unix seconds of the worker.")
    tuner: str = Field(description="The search strategy that asked for it.")
    message: str = Field(description="What went wrong, where something did.")
    extra: dict[str, Any] | None = Field(description="More about the measurement.")
    device_id: str | None = Field(description="The device, where it is one of this farm.")
    job_id: str | None = Field(description="The job that measured it.")
    created_at: float = Field(description="When it was stored, Unix seconds.")
