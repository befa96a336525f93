"""`Quantisation`: how a float network was quantised to 8 bits, and what that cost in accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.precision import Precision, parse_precision

DEFAULT_MAX_ERROR = 0.05
"""Limit of the error where the user gives none: classifiers quantised well are at 0.01 to 0.03."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputError(JsonFields):
    """How far an output of the quantised network is from the float network's, over all sample sets.

    Attributes:
        name: The output.
        mean: Mean difference, as a share of the float output's root mean square; of integers, the share of elements that differ.
        largest: Largest difference, likewise.
        largest_abs: Largest difference.
    """

    name: str
    mean: float
    largest: float
    largest_abs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation(JsonFields):
    """How a network was quantised. Of several outputs, `error` is that of the worst.

    Attributes:
        products: The number of convolutions and matrix products that multiply bytes.
        kept: The number of those that stay float, because they move the outputs too much.
        between: Whether results between products are bytes, too.
        bytes_before: Bytes of the weights of the former, as float32.
        bytes_after: As bytes.
        sets: The number of sample sets that gave the ranges, and that errors were measured on.
        max_error: The limit of `error` that was asked for.
        outputs: The error of each output.
    """

    products: int
    kept: int
    between: bool
    bytes_before: int
    bytes_after: int
    sets: int
    max_error: float
    outputs: tuple[OutputError, ...]

    @property
    def worst(self) -> OutputError:
        """The output with the largest mean error."""
        return max(self.outputs, key=lambda output: output.mean)


def network_precision(text: str | None, target: Target, quantisation: Quantisation | None) -> Precision:
    """Return the precision that the compiler applies to a network: a quantised one is compiled as it is.

    Raises:
        InvalidInputError: As `parse_precision`; not-quantised: int8 is asked for, and the network is a float one.
    """
    precision = parse_precision(text, target)
    if precision is Precision.INT8 and quantisation is None:
        raise InvalidInputError(
            "precision int8 takes a network that quantise_model made: call it first, with samples",
            code="not-quantised",
        )
    return precision.of_network


def check_max_error(max_error: float) -> None:
    """Refuse a limit that is no share.

    Raises:
        InvalidInputError: invalid-max-error.
    """
    if not (math.isfinite(max_error) and 0 < max_error <= 1):
        raise InvalidInputError(
            f"max_error must be above 0 and at most 1, and is {max_error:g}: it is a share of the outputs' root mean square",
            code="invalid-max-error",
        )


def samples_needed() -> InvalidInputError:
    """Return the error for a network that is to be quantised without samples."""
    return InvalidInputError(
        "precision int8 needs samples, given with the job: real inputs show the ranges of activations, and how accurate the result is",
        code="samples-needed",
    )
