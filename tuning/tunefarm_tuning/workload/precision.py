"""`Precision`: how a network's weights are stored, as in its file or in fewer bytes, and what its products are computed in."""

from __future__ import annotations

from enum import StrEnum

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.target.dot_products import (
    bfloat16_lanes,
    dot_product_lanes,
    has_float16,
)
from tunefarm_tuning.target.target import Target


class Precision(StrEnum):
    """The dtype in which large weights of convolutions and matrix products are stored, or in which these are computed.

    Where only weights are stored so, arithmetic stays float32: each kernel widens its weights when it reads them.
    """

    AS_MODEL = "as-model"
    FLOAT16_WEIGHTS = "float16-weights"
    BFLOAT16_WEIGHTS = "bfloat16-weights"
    INT8_WEIGHTS = "int8-weights"
    """Stores as int8 the weights that a quantised model has as integers times a scale; other weights stay as they are."""

    BFLOAT16 = "bfloat16"
    """Multiplies bfloat16 with bfloat16 in convolutions and matrix products, and adds up in float32. Needs AVX512_BF16, or Arm's bf16."""

    FLOAT16 = "float16"
    """Multiplies and adds up in float16, some hundred products at a time, and adds those sums in float32. Needs Arm's fp16."""

    INT8 = "int8"
    """Quantises the network on the user's samples (`quantise_model`), and multiplies bytes. Needs AVX2, VNNI or another int8 dot product."""

    @property
    def of_network(self) -> Precision:
        """The precision that the compiler applies to the network: a quantised one is compiled as it is."""
        return Precision.AS_MODEL if self is Precision.INT8 else self

    @property
    def stores_weights(self) -> bool:
        """Whether weights are stored in fewer bytes than they are computed with."""
        return self not in (Precision.AS_MODEL, Precision.INT8) and not self.multiplies

    @property
    def multiplies(self) -> bool:
        """Whether convolutions and matrix products of a float network are computed in it."""
        return self in (Precision.BFLOAT16, Precision.FLOAT16)

    @property
    def narrow_factors(self) -> str | None:
        """The dtype that the factors of products are rounded to; None if they are not."""
        return self.value if self.multiplies else None

    @property
    def rounding(self) -> str:
        """The rounding that outputs are compared by (`reference.comparison.compare_arrays`), if no other part of the network needs a wider one."""
        return {
            Precision.FLOAT16_WEIGHTS: "float16",
            Precision.BFLOAT16_WEIGHTS: "bfloat16",
            Precision.BFLOAT16: "bfloat16",
            Precision.FLOAT16: "float16",
        }.get(self, "float32")

    @property
    def tolerance(self) -> str:
        """Deprecated: `rounding`."""
        return self.rounding


def parse_precision(text: str | None, target: Target | None = None) -> Precision:
    """Return the precision of this name (None: `Precision.AS_MODEL`); check that the target, if given, allows it.

    Raises:
        InvalidInputError: If there is no such precision (unknown-precision), or not for the target (unsupported-precision).
    """
    if text is None:
        return Precision.AS_MODEL
    known = [precision.value for precision in Precision]
    try:
        precision = Precision(text)
    except ValueError:
        raise InvalidInputError(
            f"there is no precision {clean(str(text), 40)!r}; there are {', '.join(known)}",
            code="unknown-precision",
            known=known,
        ) from None
    if precision is not Precision.AS_MODEL and target is not None and target.kind != "llvm":
        raise InvalidInputError(
            f"the precision {precision.value} is for CPUs, and the target is of kind {target.kind}: leave it out",
            code="unsupported-precision",
        )
    if precision is Precision.BFLOAT16 and target is not None and not bfloat16_lanes(target):
        raise InvalidInputError(
            f"the precision {precision.value} needs a CPU with AVX512_BF16 (in /proc/cpuinfo: avx512_bf16; by LLVM's name "
            f"avx512bf16), or Arm's bf16, and the target {clean(target.key, 80)} lacks it: omit the precision, or use "
            f"{Precision.BFLOAT16_WEIGHTS.value}, which stores weights in this format and computes in float32",
            code="unsupported-precision",
        )
    if precision is Precision.FLOAT16 and target is not None and not has_float16(target):
        raise InvalidInputError(
            f"the precision {precision.value} needs an Arm CPU with arithmetic of float16 (in /proc/cpuinfo: asimdhp; by LLVM's name fullfp16), "
            f"and the target {clean(target.key, 80)} lacks it: omit the precision, or use {Precision.FLOAT16_WEIGHTS.value}, which stores weights "
            "so and computes in float32",
            code="unsupported-precision",
        )
    if precision is Precision.INT8 and target is not None and not dot_product_lanes(target):
        raise InvalidInputError(
            f"the precision {precision.value} needs a CPU with an int8 dot product (in /proc/cpuinfo: avx2, avx512_vnni, avx_vnni or asimddp), and "
            f"the target {clean(target.key, 80)} lacks it: omit the precision",
            code="unsupported-precision",
        )
    return precision
