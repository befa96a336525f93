"""Which CPUs have dot product instructions, of int8 (VNNI) and of bfloat16, by LLVM's names for them; asking needs no TVM.

The kernels of a quantised network, and of one computed in bfloat16, depend on them. So the farm, which stores a model's tasks, asks as
well as the compiler.
"""

from __future__ import annotations

from tunefarm_tuning.target.target import Target

_AVX512_VNNI = (
    "cascadelake cooperlake diamondrapids emeraldrapids graniterapids graniterapids-d graniterapids_d icelake-client "
    "icelake-server icelake_client icelake_server novalake rocketlake sapphirerapids tigerlake znver4 znver5"
)
_AVX_VNNI = (
    "alderlake arrowlake arrowlake-s arrowlake_s clearwaterforest gracemont grandridge lunarlake meteorlake pantherlake "
    "raptorlake sierraforest wildcatlake"
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
_LANES = {**dict.fromkeys(_AVX512_VNNI.split(), 16), **dict.fromkeys(_AVX_VNNI.split(), 8)}
_AVX2 = {"sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx", "avx2"}
_AVX512 = {"avx512f", "fma", "f16c", *_AVX2}
# By lanes: the feature with the instruction, and all features without which LLVM removes it.
_NEEDED = {
    16: ("avx512vnni", {"avx512vnni", *_AVX512}),
    8: ("avxvnni", {"avxvnni", *_AVX2}),
}
BFLOAT16_FEATURE = "avx512bf16"
"""LLVM's name of the feature with ``vdpbf16ps``."""
_NEEDED_BY_BFLOAT16 = {BFLOAT16_FEATURE, "avx512bw", *_AVX512}


def dot_product_lanes(target: Target) -> int:
    """Return the lanes of a target's int8 instruction, each a sum of four products: 16, 8, or 0 without such an instruction.

    The target's attributes count: those that remove the instruction or its basis (``-mattr=-avx512vnni``, ``-avx512f``), and
    those that add it.
    """
    if target.kind != "llvm":
        return 0
    attributes = _attributes(target)
    removed = {feature[1:] for feature in attributes if feature.startswith("-")}
    own = _LANES.get(str(target.get("mcpu")), 0)
    for lanes, (feature, needed) in _NEEDED.items():
        if (lanes == own or f"+{feature}" in attributes) and not needed & removed:
            return lanes
    return 0


def has_bfloat16_dot_product(target: Target) -> bool:
    """Return whether a target has ``vdpbf16ps``, which adds two products of bfloat16 to each of 16 sums of float32.

    The target's attributes count, as for `dot_product_lanes`.
    """
    if target.kind != "llvm":
        return False
    attributes = _attributes(target)
    removed = {feature[1:] for feature in attributes if feature.startswith("-")}
    own = str(target.get("mcpu")) in _AVX512_BF16 or f"+{BFLOAT16_FEATURE}" in attributes
    return own and not _NEEDED_BY_BFLOAT16 & removed


def _attributes(target: Target) -> tuple[str, ...]:
    mattr = target.get("mattr")
    return mattr if isinstance(mattr, tuple) else tuple(str(mattr or "").split(","))
