"""What is known of cores, by their names."""

from __future__ import annotations

import pytest

from tunefarm_tuning.target.cores import (
    ANY_ARM,
    ANY_X86,
    FOUR_PIPES,
    IN_ORDER,
    TWO_PIPES,
    Core,
    core_of,
)
from tunefarm_tuning.target.parse import parse_target

ARM = "-mtriple=aarch64-linux-gnu"


@pytest.mark.parametrize(
    ("target", "core"),
    [
        (f"llvm -mcpu=cortex-a55 {ARM}", IN_ORDER),
        (f"llvm -mcpu=cortex-a72 -mattr=-aes {ARM}", ANY_ARM),
        (f"llvm -mcpu=neoverse-n1 {ARM}", TWO_PIPES),
        (f"llvm -mcpu=neoverse-v2 {ARM}", FOUR_PIPES),
        (f"llvm -mcpu=generic -mattr=+dotprod {ARM}", ANY_ARM),
        ("llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu", ANY_X86),
    ],
)
def test_a_core_is_known_by_its_name(target: str, core: Core) -> None:
    assert core_of(parse_target(target)) is core
