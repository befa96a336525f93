"""Find the fastest quantised form of a network whose error is small enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.quantisation.accuracy import (
    USELESS,
    Feeds,
    Outputs,
    output_errors,
    outputs_on,
)
from tunefarm_tuning.frontend.onnx.quantisation.quantiser import BETWEEN, PRODUCTS, Quantiser
from tunefarm_tuning.workload.quantisation import OutputError

_RANKING_SETS = 2
"""So many sample sets rank the products by how much each moves the outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedForm:
    """A quantised form of a network, and how far it is from the float network.

    Attributes:
        kept: Names of the products that stay float.
        between: Whether results between products are bytes, too.
    """

    model: onnx.ModelProto
    outputs: tuple[OutputError, ...]
    kept: tuple[str, ...]
    between: bool

    @property
    def error(self) -> float:
        """The mean error of the output with the largest one."""
        return max(output.mean for output in self.outputs)


def quantise_within(quantiser: Quantiser, feeds: Sequence[Feeds], max_error: float) -> QuantisedForm:
    """Return the network with as much quantised as the limit allows.

    First everything, then the products alone; then the products that move the outputs most stay float, as few as suffice.

    Args:
        quantiser: Of the network.
        feeds: Sample sets.
        max_error: Largest mean error of an output, as `OutputError.mean`.

    Raises:
        InvalidModelError: nothing-to-quantise; too-inaccurate, with ``error`` of the best form and ``max_error``; a code of
            `Quantiser`.
    """
    products = [node.name for node in quantiser.products]
    if not products:
        raise InvalidModelError(
            "the network has no convolution or matrix product of float32 with constant weights, so there is nothing to compute in "
            "int8: leave the precision out",
            code="nothing-to-quantise",
        )
    names = [value.name for value in quantiser.prepared.graph.output]
    expected = quantiser.expected

    def form(kept: Sequence[str], *, between: bool) -> QuantisedForm:
        model = quantiser.quantised([*PRODUCTS, *(BETWEEN if between else ())], kept)
        errors = output_errors(names, _outputs(model, feeds), expected)
        return QuantisedForm(model=model, outputs=errors, kept=tuple(kept), between=between)

    best = form((), between=True)
    if best.error > max_error:
        best = min(best, form((), between=False), key=lambda each: each.error)
    if best.error <= max_error:
        return best
    ranked = _most_sensitive_first(quantiser, products, feeds[:_RANKING_SETS], expected[:_RANKING_SETS])
    fewest, most = 1, len(products)  # so many stay float; all of them would be no quantised network
    while fewest < most:
        count = (fewest + most) // 2
        tried = form(ranked[:count], between=False)
        if tried.error <= max_error:
            most, best = count, tried
        else:
            fewest = count + 1
            best = min(best, tried, key=lambda each: each.error)
    if best.error <= max_error:
        return best
    off = (
        "are not numbers"
        if best.error >= USELESS
        else f"are off by {best.error:.2g} of their root mean square"
    )
    raise InvalidModelError(
        f"in int8 the outputs {off}, and {max_error:g} was asked for, even if "
        f"{len(best.kept)} of {len(products)} products stay float32; allow a larger error, give samples that are more like the "
        "real inputs, or choose another precision",
        code="too-inaccurate",
        error=best.error,
        max_error=max_error,
    )


def _outputs(model: onnx.ModelProto, feeds: Sequence[Feeds]) -> list[Outputs]:
    """Return the outputs of a quantised form.

    Raises:
        InvalidModelError: quantise-failed: the quantiser wrote a network that does not run, as where names clash with its own.
    """
    try:
        return outputs_on(model, feeds)
    except InvalidModelError as error:
        raise InvalidModelError(
            f"what ONNX Runtime's quantiser made of the model does not run: {error.message}",
            code="quantise-failed",
        ) from error


def _most_sensitive_first(
    quantiser: Quantiser, products: Sequence[str], feeds: Sequence[Feeds], expected: Sequence[Outputs]
) -> list[str]:
    """Return the names of the products, those first which, quantised alone, move the outputs most."""
    names = [value.name for value in quantiser.prepared.graph.output]
    moved = {}
    for product in products:
        model = quantiser.quantised(PRODUCTS, [other for other in products if other != product])
        errors = output_errors(names, _outputs(model, feeds), expected)
        moved[product] = max(error.mean for error in errors)
    return sorted(products, key=lambda product: -moved[product])
