"""Which CPUs multiply bytes and add up in one instruction, ``vpdpbusd``: by LLVM's names, so that asking needs no TVM.

What a quantised network's kernels are depends on it: so the farm, which keeps a model's tasks, asks as well as the compiler.
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
_LANES = {
    **dict.fromkeys(_AVX512_VNNI.split(), 16),
    **dict.fromkeys(_AVX_VNNI.split(), 8),
}
_AVX2 = {"sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx", "avx2"}
# By lanes: the feature that has the instruction, and all that LLVM takes it away with.
_NEEDED = {
    16: ("avx512vnni", {"avx512vnni", "avx512f", "fma", "f16c", *_AVX2}),
    8: ("avxvnni", {"avxvnni", *_AVX2}),
}


def dot_product_lanes(target: Target) -> int:
    """Return how many sums of four products of bytes one instruction of a target makes: 16, 8, or 0 where it has none.

    Attributes count: those that take the instruction away, or what it is built on (``-mattr=-avx512vnni``, ``-avx512f``), and
    those that add it.
    """
    if target.kind != "llvm":
        return 0
    given = target.get("mattr")
    attributes = given if isinstance(given, tuple) else str(given or "").split(",")
    taken = {one[1:] for one in attributes if one.startswith("-")}
    own = _LANES.get(str(target.get("mcpu")), 0)
    for lanes, (feature, needed) in _NEEDED.items():
        if (lanes == own or f"+{feature}" in attributes) and not needed & taken:
            return lanes
    return 0
