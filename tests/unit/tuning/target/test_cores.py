"""What is known of cores, by their names."""

from __future__ import annotations

import pytest

from tunefarm_tuning.target import cores, parse
from tunefarm_tuning.target.cores import (
    ANY_ARM,
    ANY_X86,
    FOUR_PIPES,
    IN_ORDER,
    TWO_PIPES,
    Core,
    core_of,
    tuning_attributes,
)
from tunefarm_tuning.target.parse import parse_target

ARM = "-mtriple=aarch64-linux-gnu"
UNPLACED = (
    "generic cortex-a57 cortex-a65 cortex-a65ae cortex-a72 cortex-a73 neoverse-e1 apple-a7 apple-a10 apple-a11 apple-a12 apple-a13 a64fx carmel "
    "exynos-m3 exynos-m4 exynos-m5 falkor fujitsu-monaka kryo saphira thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 "
    "thunderxt88 tsv110"
)
"""What counts as any core, because that fits or because nothing is known of it."""


@pytest.mark.parametrize(
    ("target", "core"),
    [
        (f"llvm -mcpu=cortex-a55 {ARM}", IN_ORDER),
        (f"llvm -mcpu=cortex-r82 {ARM}", IN_ORDER),
        (f"llvm -mcpu=cortex-a72 -mattr=-aes {ARM}", ANY_ARM),
        (f"llvm -mcpu=cortex-a65ae {ARM}", ANY_ARM),
        (f"llvm -mcpu=neoverse-e1 {ARM}", ANY_ARM),
        (f"llvm -mcpu=neoverse-n1 {ARM}", TWO_PIPES),
        (f"llvm -mcpu=neoverse-v2 {ARM}", FOUR_PIPES),
        (f"llvm -mcpu=generic -mattr=+dotprod {ARM}", ANY_ARM),
        ("llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu", ANY_X86),
    ],
)
def test_a_core_is_known_by_its_name(target: str, core: Core) -> None:
    assert core_of(parse_target(target)) is core


def test_each_core_that_llvm_knows_is_placed_or_left_out_on_purpose() -> None:
    """A version of LLVM with more of them fails here."""
    assert set(parse._table()["cpus"]["aarch64"]) - set(cores._BY_NAME) == set(UNPLACED.split())


def test_attributes_that_make_other_code_are_for_cores_of_arm() -> None:
    assert tuning_attributes(parse_target(f"llvm -mcpu=cortex-a55 {ARM}")) == ("+slow-paired-128",)
    for target in (
        f"llvm -mcpu=cortex-a72 {ARM}",
        "llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu",
        "cuda/sm_90",
    ):
        assert tuning_attributes(parse_target(target)) == ()
