"""The sections of a job's report on precision: how weights are stored or products computed, and what that costs."""

from __future__ import annotations

from pydantic import Field

from tunefarm_app.report.sections import ReportSection


class ReportErrors(ReportSection):
    """Errors of the outputs."""

    max_abs_error: float = Field(description="Largest difference of two finite elements.")
    max_rel_error: float = Field(description="The same, as a share of its output's root mean square.")
    mean_rel_error: float = Field(description="Mean difference of the output with the largest one.")


class ReportAccuracyOnSamples(ReportSection):
    """The effect of storing weights in fewer bytes on the outputs, on the user's samples alone."""

    stored: ReportErrors = Field(description="Error of the artifact against ONNX Runtime.")
    as_model: ReportErrors | None = Field(
        description="Error of the same network with the weights of its file; null if it could not be run."
    )


class ReportAccuracy(ReportSection):
    """The effect of storing weights in fewer bytes on the outputs."""

    stored: ReportErrors = Field(
        description="Error of the artifact against ONNX Runtime; of int8, of the quantised network against the float one."
    )
    as_model: ReportErrors | None = Field(
        description="Error of the same network with the weights of its file; null if it could not be run."
    )
    on_samples: ReportAccuracyOnSamples | None = Field(
        None, description="The same on the user's samples alone; null if there are none."
    )


class ReportStored(ReportSection):
    """Large weights."""

    stored: int = Field(description="Number of tensors stored in fewer bytes, or multiplied in them.")
    kept: int = Field(description="Number of tensors stored unchanged.")
    bytes_before: int = Field(description="Bytes of the former, as float32.")
    bytes_after: int = Field(description="Bytes of the same tensors, as stored.")


class ReportOutputError(ReportSection):
    """Error of an output of the quantised network, over all sample sets."""

    name: str = Field(description="The output.")
    mean: float = Field(
        description="Mean difference as a share of the float output's root mean square; of integers, the share that differs."
    )
    largest: float = Field(description="Largest difference, likewise.")
    largest_abs: float = Field(description="Largest difference.")


class ReportQuantisation(ReportSection):
    """How a float network was quantised."""

    products: int = Field(description="Convolutions and matrix products that multiply bytes.")
    kept: int = Field(description="Those that stay float, because they move the outputs too much.")
    between: bool = Field(description="Whether results between products are bytes, too.")
    bytes_before: int = Field(description="Bytes of the former's weights, as float32.")
    bytes_after: int = Field(description="As bytes.")
    sets: int = Field(description="Sample sets that gave the ranges, and that errors were measured on.")
    max_error: float = Field(description="The largest mean error that was asked for.")
    outputs: list[ReportOutputError] = Field(description="The error of each output.")


class ReportPrecision(ReportSection):
    """Format of the stored weights, and of the products that are computed in it."""

    name: str = Field(
        description="as-model, float16-weights, bfloat16-weights, int8-weights, bfloat16, float16 or int8."
    )
    weights: ReportStored | None = Field(None, description="Numbers of tensors and bytes; null for as-model.")
    method: str | None = Field(None, description="Method of measuring the accuracy.")
    accuracy: ReportAccuracy | None = Field(None, description="Loss of accuracy; null for as-model.")
    quantisation: ReportQuantisation | None = Field(
        None, description="How the network was quantised; null unless int8."
    )
