"""What the cores of CPUs can do in a cycle, by LLVM's names, for the rules that choose register tiles; without TVM.

The figures are from Arm's optimisation guides and LLVM's models of the cores. A first cache is that of the core; boards differ in the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm_tuning.target.dot_products import is_arm64
from tunefarm_tuning.target.target import Target

_KIB = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A core.

    Attributes:
        fma_per_cycle: Multiply-adds of vectors.
        loads_per_cycle: Loads of single factors.
        loads_of_vector: How many of these take as long as the load of a vector.
        fma_latency_cycles: From a multiply-add to the next one of the same sum.
        exposed_load_cycles: Cycles that a load of a vector takes beside multiply-adds; cores that reorder instructions hide them.
        exposed_factor_cycles: The same of a load of a single factor.
        first_cache_bytes: For a panel of weights: three quarters of the first cache.
        second_cache_bytes: For the same: half of the second cache, because the input needs space, too.
        rows_bytes: For the rows of an input that a block of tiles reads again and again, in the second cache.
        registers: Of vectors, those that tiles of Arm are made for; 0 for x86, where the width of vectors tells.
        most_vectors: Longest tile, in vectors.
    """

    fma_per_cycle: float = 2.0
    loads_per_cycle: float = 2.0
    loads_of_vector: float = 1.0
    fma_latency_cycles: float = 4.0
    exposed_load_cycles: float = 0.0
    exposed_factor_cycles: float = 0.0
    first_cache_bytes: int = 24 * _KIB
    second_cache_bytes: int = 512 * _KIB
    rows_bytes: int = 512 * _KIB
    registers: int = 0
    most_vectors: int = 16


ANY_X86 = Core()
"""The least of the CPUs with AVX-512."""
AVX2 = Core(loads_per_cycle=1.25, loads_of_vector=2.0, fma_latency_cycles=5.0, rows_bytes=256 * _KIB)
"""x86 CPUs without AVX-512, whose multiply-adds take factors from registers alone. Fitted to tiles of convolutions on a Zen 3
(benchmarks/results/avx2.md): its books say two loads a cycle, and four cycles from sum to sum. Blocks of rows were timed on a Zen 2."""
_FEWER = 28
"""Of the 32 registers: on x86 a multiply-add reads a factor from memory; Arm's takes registers alone, and LLVM loads several ahead. Tiles
of 28 sums are moved from register to register on a Neoverse N1, and spilled on a Cortex-A55 (benchmarks/results/arm.md)."""
ANY_ARM = Core(registers=_FEWER)
"""Also Cortex-A57, A72 and A73: two pipes, 32 KiB; and Cortex-A65 and Neoverse E1, which reorder instructions, as LLVM's model of them (that
of a Cortex-A53) does not."""
IN_ORDER = Core(
    fma_per_cycle=1.0,
    loads_per_cycle=1.0,
    exposed_load_cycles=1.5,
    exposed_factor_cycles=0.25,
    second_cache_bytes=64 * _KIB,
    rows_bytes=64 * _KIB,
    registers=_FEWER,
)
"""Cortex-A53, A55, R82 and the like: a load waits for its turn beside the multiply-adds."""
TWO_PIPES = Core(
    first_cache_bytes=48 * _KIB, second_cache_bytes=256 * _KIB, rows_bytes=256 * _KIB, registers=_FEWER
)
"""Cortex-A75 to A725, Neoverse N1 to N3, Ampere1: 64 KiB. Of C1-Pro and Ampere1C there are no figures here: each follows one of these."""
FOUR_PIPES = Core(
    fma_per_cycle=4.0,
    loads_per_cycle=3.0,
    fma_latency_cycles=5.0,
    first_cache_bytes=48 * _KIB,
    registers=32,
    most_vectors=28,
)
"""Neoverse V1 to V3, Cortex-X, Apple's large cores since A14: 20 sums are under way at once. Earlier ones have three pipes, which no rule is
for, and nothing was measured: they count as any core."""

_KINDS = (
    (
        IN_ORDER,
        (
            "cortex-a34 cortex-a35 cortex-a53 cortex-a55 cortex-a320 cortex-a510 cortex-a520 cortex-a520ae c1-nano cortex-r82 cortex-r82ae"
        ),
    ),
    (
        TWO_PIPES,
        (
            "cortex-a75 cortex-a76 cortex-a76ae cortex-a77 cortex-a78 cortex-a78ae cortex-a78c cortex-a710 cortex-a715 cortex-a720 cortex-a720ae "
            "cortex-a725 c1-pro neoverse-n1 neoverse-n2 neoverse-n3 ampere1 ampere1a ampere1b ampere1c"
        ),
    ),
    (
        FOUR_PIPES,
        (
            "cortex-x1 cortex-x1c cortex-x2 cortex-x3 cortex-x4 cortex-x925 neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae "
            "neoverse-512tvb grace gb10 olympus oryon-1 apple-a14 apple-a15 apple-a16 apple-a17 apple-m4 "
            "apple-m5 c1-premium c1-ultra"
        ),
    ),
)
_BY_NAME = {name: core for core, names in _KINDS for name in names.split()}


def core_of(target: Target) -> Core:
    """Return the core of a CPU's target; for a name that is not known, what cores of its architecture have in common."""
    if not is_arm64(target):
        return ANY_X86
    return _BY_NAME.get(str(target.get("mcpu")), ANY_ARM)


_SLOW_PAIRS = frozenset(["cortex-a55", "cortex-r82", "cortex-r82ae"])
"""Cores whose load of two vectors of 128 bits LLVM models with six cycles, and those of one with a cycle each (LLVM 19)."""


def tuning_attributes(target: Target) -> tuple[str, ...]:
    """Return LLVM's attributes that make other code for a core, and need nothing of it: no part of the target that records are for."""
    is_slow = target.kind == "llvm" and is_arm64(target) and target.get("mcpu") in _SLOW_PAIRS
    return ("+slow-paired-128",) if is_slow else ()
