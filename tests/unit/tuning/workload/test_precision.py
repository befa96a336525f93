"""Which precisions there are, and which targets allow them."""

from __future__ import annotations

import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.precision import Precision, parse_precision

ZEN4 = Target.from_json({"kind": "llvm", "mcpu": "znver4"})


def test_bfloat16_is_for_cpus_with_the_instruction() -> None:
    assert parse_precision("bfloat16", ZEN4) is Precision.BFLOAT16
    added = Target.from_json({"kind": "llvm", "mcpu": "skylake-avx512", "mattr": ["+avx512bf16"]})
    assert parse_precision("bfloat16", added) is Precision.BFLOAT16


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "llvm"},
        {"kind": "llvm", "mcpu": "znver3"},
        {"kind": "llvm", "mcpu": "znver4", "mattr": ["-avx512bf16"]},
        {"kind": "llvm", "mcpu": "cortex-a72"},
    ],
)
def test_other_cpus_are_refused_by_the_name_of_the_flag(target: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="avx512_bf16") as caught:
        parse_precision("bfloat16", Target.from_json(target))
    assert caught.value.code == "unsupported-precision"


def test_gpus_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="is for CPUs"):
        parse_precision("bfloat16", Target.from_json({"kind": "cuda", "arch": "sm_90"}))


def test_only_it_stores_no_weights() -> None:
    assert [precision for precision in Precision if not precision.stores_weights] == [
        "as-model",
        "bfloat16",
        "float16",
        "int8",
    ]
    assert Precision.BFLOAT16.rounding == "bfloat16"
