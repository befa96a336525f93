"""Which CPUs multiply bytes and add up in one instruction, ``vpdpbusd``: by LLVM's names, so that asking needs no TVM.

What a quantised network's kernels are depends on it: so the farm, which keeps a model's tasks, asks as well as the compiler.
"""

from __future__ import annotations

from tunefarm_tuning.target import Target

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


def dot_lanes(target: Target) -> int:
    """Return how many sums of four products of bytes one instruction of a target makes: 16, 8, or 0 where it has none.

    Attributes that take a feature away (``-mattr=-avx512vnni``) or a width (``-avx512f``) do so here.
    """
    if target.kind != "llvm":
        return 0
    given = target.get("mattr")
    attributes = given if isinstance(given, tuple) else str(given or "").split(",")
    if any(one.startswith("-avx") for one in attributes):
        return 0
    lanes = _LANES.get(str(target.get("mcpu")), 0)
    return 16 if "+avx512vnni" in attributes else max(lanes, 8 if "+avxvnni" in attributes else 0)
