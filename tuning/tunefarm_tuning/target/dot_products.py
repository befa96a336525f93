"""Which CPUs have dot products of int8 (VNNI, AVX2's ``vpmaddwd``, Arm's ``sdot``, ``smmla``) and bfloat16, and float16; without TVM.

The kernels of a quantised network, and of one computed in bfloat16, depend on them. So the farm, which stores a model's tasks, asks as
well as the compiler.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from tunefarm_tuning.target.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteProducts:
    """An instruction that adds products of bytes to sums of 32 bits, or an instruction that adds up products of 16 bits, and an addition.

    Attributes:
        key: Its part of the names of graph pipelines.
        feature: LLVM's name of the feature that a CPU with it has.
        intrinsic: LLVM's name for it.
        lanes: Results of a row that it adds to.
        rows: Rows of activations that it takes, whose sums lie one after the other in a register.
        products: Products that it adds to each sum.
        activations: Their type, of 8 or 16 bits. Weights are int8.
        most_sums: Registers for sums; the CPU's others have factors.
        for_a_row: The CPU's instruction where a product has a single row; None for this one.
    """

    key: str
    feature: str
    intrinsic: str
    lanes: int
    rows: int = 1
    products: int = 4
    activations: str
    most_sums: int
    for_a_row: ByteProducts | None = None

    @property
    def by_row(self) -> ByteProducts:
        """The CPU's best instruction that takes a single row of activations."""
        return self.for_a_row or self


AVX512_VNNI = ByteProducts(
    key="dot16",
    feature="avx512vnni",
    intrinsic="llvm.x86.avx512.vpdpbusd.512",
    lanes=16,
    activations="uint8",
    most_sums=28,
)
AVX_VNNI = ByteProducts(
    key="dot8",
    feature="avxvnni",
    intrinsic="llvm.x86.avx512.vpdpbusd.256",
    lanes=8,
    activations="uint8",
    most_sums=12,
)
AVX512_PAIRS = ByteProducts(
    key="pair16",
    feature="avx512bw",
    intrinsic="llvm.x86.avx512.pmaddw.d.512",
    lanes=16,
    products=2,
    activations="int16",
    most_sums=26,
)
AVX2_PAIRS = ByteProducts(
    key="pair8",
    feature="avx2",
    intrinsic="llvm.x86.avx2.pmadd.wd",
    lanes=8,
    products=2,
    activations="int16",
    most_sums=10,
)
"""``vpmaddwd`` of activations and weights that were bytes: exact, where ``vpmaddubsw``, which takes bytes, is cut off at 16 bits."""
SDOT = ByteProducts(
    key="dot4",
    feature="dotprod",
    intrinsic="llvm.aarch64.neon.sdot.v4i32.v16i8",
    lanes=4,
    activations="int8",
    most_sums=24,
)
SMMLA = ByteProducts(
    key="mmla",
    feature="i8mm",
    intrinsic="llvm.aarch64.neon.smmla.v4i32.v16i8",
    lanes=2,
    rows=2,
    products=8,
    activations="int8",
    most_sums=20,
    for_a_row=SDOT,
)

BYTE_DOTS = {instruction.lanes: instruction for instruction in (AVX512_VNNI, AVX_VNNI, SDOT)}
"""The instructions that multiply each row on its own, by their lanes."""

_AVX512_VNNI = (
    "cascadelake cooperlake diamondrapids emeraldrapids graniterapids graniterapids-d graniterapids_d icelake-client "
    "icelake-server icelake_client icelake_server novalake rocketlake sapphirerapids tigerlake znver4 znver5"
)
_AVX_VNNI = (
    "alderlake arrowlake arrowlake-s arrowlake_s clearwaterforest gracemont grandridge lunarlake meteorlake pantherlake "
    "raptorlake sierraforest wildcatlake"
)
_AVX512_BW = "cannonlake skx skylake-avx512 skylake_avx512 x86-64-v4"
_AVX2_ALONE = (
    "bdver4 broadwell core-avx2 core_4th_gen_avx core_4th_gen_avx_tsx core_5th_gen_avx core_5th_gen_avx_tsx haswell skylake x86-64-v3 "
    "znver1 znver2 znver3"
)
_AVX512_BF16 = frozenset(
    [
        "cooperlake",
        "diamondrapids",
        "emeraldrapids",
        "graniterapids",
        "graniterapids-d",
        "graniterapids_d",
        "novalake",
        "sapphirerapids",
        "znver4",
        "znver5",
    ]
)
_ARM_I8MM = (
    "ampere1 ampere1a ampere1b ampere1c apple-a15 apple-a16 apple-a17 apple-m4 apple-m5 c1-nano c1-premium "
    "c1-pro c1-ultra cortex-a320 cortex-a510 cortex-a520 cortex-a520ae cortex-a710 cortex-a715 cortex-a720 cortex-a720ae "
    "cortex-a725 cortex-x2 cortex-x3 cortex-x4 cortex-x925 fujitsu-monaka gb10 grace neoverse-512tvb neoverse-n2 neoverse-n3 "
    "neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae olympus oryon-1"
)
_ARM_DOTPROD = (
    f"{_ARM_I8MM} apple-a13 apple-a14 cortex-a55 cortex-a65 cortex-a65ae cortex-a75 cortex-a76 cortex-a76ae cortex-a77 "
    "cortex-a78 cortex-a78ae cortex-a78c cortex-r82 cortex-r82ae cortex-x1 cortex-x1c exynos-m4 exynos-m5 neoverse-e1 "
    "neoverse-n1 saphira tsv110"
)
_ARM_FLOAT16 = frozenset(f"{_ARM_DOTPROD} a64fx apple-a11 apple-a12 carmel".split()) - {"saphira"}
_AVX2 = {"sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx", "avx2"}
_AVX512 = {"avx512f", "fma", "f16c", *_AVX2}
_NEON = {"neon", "fp-armv8"}
_X86 = (
    (AVX512_VNNI, frozenset(_AVX512_VNNI.split()), _AVX512),
    (AVX_VNNI, frozenset(_AVX_VNNI.split()), _AVX2),
    (AVX512_PAIRS, frozenset(f"{_AVX512_BW} {_AVX512_VNNI}".split()), _AVX512),
    (AVX2_PAIRS, frozenset(f"{_AVX2_ALONE} {_AVX512_BW} {_AVX512_VNNI} {_AVX_VNNI}".split()), _AVX2),
)
_ARM = (
    (SMMLA, frozenset(_ARM_I8MM.split()), _NEON),
    (SDOT, frozenset(_ARM_DOTPROD.split()), _NEON),
)
"""Instructions, the best one first: the CPUs that have it, and the features, beside its own, without which LLVM removes it."""
_BFLOAT16_X86 = (16, _AVX512_BF16, "avx512bf16", {"avx512bf16", "avx512bw", *_AVX512})
_BFLOAT16_ARM = (4, frozenset(_ARM_I8MM.split()), "bf16", {"bf16", *_NEON})
"""The same of bfloat16, with the lanes; LLVM's Arm CPUs with products of matrices of bytes are those with products of bfloat16."""


def byte_products(target: Target) -> ByteProducts | None:
    """Return a target's best instruction for products of int8; None without one.

    The target's attributes count: those that remove the instruction or its basis (``-mattr=-avx512vnni``, ``-avx512f``), and
    those that add it.
    """
    if target.kind != "llvm":
        return None
    attributes = _attributes(target)
    removed = {feature[1:] for feature in attributes if feature.startswith("-")}
    available = [
        instruction
        for instruction, cpus, basis in (_ARM if is_arm64(target) else _X86)
        if (target.get("mcpu") in cpus or f"+{instruction.feature}" in attributes)
        and not {instruction.feature, *basis} & removed
    ]
    return next((instruction for instruction in available if instruction.by_row in available), None)


def dot_product_lanes(target: Target) -> int:
    """Return the lanes of a target's int8 instruction (`byte_products`), each a sum of four products; 0 without one."""
    instruction = byte_products(target)
    return 0 if instruction is None else instruction.lanes


def is_arm64(target: Target) -> bool:
    """Return whether a CPU's target is for 64-bit Arm; without a triple it is for this machine."""
    machine = str(target.get("mtriple") or platform.machine())
    return machine.lower().startswith(("aarch64", "arm64"))


def bfloat16_lanes(target: Target) -> int:
    """Return to how many sums of float32 a target's instruction adds two products of bfloat16 each; 0 without one.

    16 with ``vdpbf16ps`` (AVX512_BF16), 4 with ``bfdot`` (Arm). The target's attributes count, as for `byte_products`.
    """
    if target.kind != "llvm":
        return 0
    attributes = _attributes(target)
    removed = {feature[1:] for feature in attributes if feature.startswith("-")}
    lanes, cpus, feature, needed = _BFLOAT16_ARM if is_arm64(target) else _BFLOAT16_X86
    has = str(target.get("mcpu")) in cpus or f"+{feature}" in attributes
    return lanes if has and not needed & removed else 0


def bfloat16_matrix_lanes(target: Target) -> int:
    """Return the results of a row of Arm's ``bfmmla``, which takes two rows: 2 where there is ``bfdot``, as both are one feature; 0 elsewhere."""
    return 2 if is_arm64(target) and bfloat16_lanes(target) else 0


def has_float16(target: Target) -> bool:
    """Return whether a target is an Arm CPU with arithmetic of float16 (``fmla`` of eight of them), by its name or its attributes."""
    if target.kind != "llvm" or not is_arm64(target):
        return False
    attributes = _attributes(target)
    removed = {feature[1:] for feature in attributes if feature.startswith("-")}
    has = str(target.get("mcpu")) in _ARM_FLOAT16 or "+fullfp16" in attributes
    return has and not {"fullfp16", *_NEON} & removed


def _attributes(target: Target) -> tuple[str, ...]:
    mattr = target.get("mattr")
    return mattr if isinstance(mattr, tuple) else tuple(str(mattr or "").split(","))
