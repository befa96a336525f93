"""Tensor intrinsics of bfloat16 for NVIDIA's tensor cores: those that TVM 0.27 has for float16, in the other type.

A fragment of bfloat16 lies in registers as one of float16 does (PTX ISA, "Matrix Fragments"), and ``ldmatrix`` moves 16 bits of
whatever they mean: so TVM's makers of intrinsics can be asked for the type, and nothing but the name of the instruction
differs. Sums are made in float32, the only type that the hardware has for them.
"""

from __future__ import annotations

from functools import cache

FIRST_ARCHITECTURE = 80
"""Ampere; earlier tensor cores know no bfloat16."""

_TYPE = "bfloat16"
_SUM = "float32"
_SHARED = "shared.dyn"


@cache
def register_bfloat16() -> None:
    """Make the intrinsics known to TVM in this process, by the names of `wmma_group` and `mma_group`."""
    from tvm.s_tir import TensorIntrin
    from tvm.s_tir.tensor_intrin import cuda

    for transposed in (False, True):
        group = wmma_group(transposed=transposed)
        if not transposed:  # the left matrix never is
            load_a = cuda.get_wmma_load_intrin(16, 16, 16, _TYPE, _SHARED, is_b=False, is_col_major=False)
            TensorIntrin.register(group["load_a"], *load_a)
        load_b = cuda.get_wmma_load_intrin(16, 16, 16, _TYPE, _SHARED, is_b=True, is_col_major=transposed)
        TensorIntrin.register(group["load_b"], *load_b)
        compute = cuda.get_wmma_sync_intrin(16, 16, 16, _TYPE, _SUM, b_transposed=transposed)
        TensorIntrin.register(group["compute"], *compute)
    group = mma_group()
    # One ldmatrix moves four 8x8 tiles: of the left matrix 32 rows, of the right one 32 columns.
    for name, is_b in (("load_a", False), ("load_b", True)):
        load = cuda.get_mma_load_intrin(32, 32, 8, _TYPE, _SHARED, is_b=is_b, is_col_major=False)
        TensorIntrin.register(group[name], *load)
    compute = cuda.get_mma_sync_intrin(16, 8, 8, _TYPE, _SUM, b_transposed=False)
    TensorIntrin.register(group["compute"], *compute)


def wmma_group(*, transposed: bool) -> dict[str, str]:
    """Return the names of what a 16x16x16 product takes, for TVM's rule; what fills and stores float32 is TVM's own.

    Args:
        transposed: Whether the right matrix lies transposed.
    """
    suffix = "_trans" if transposed else ""
    return {
        "init": "wmma_fill_16x16x16_f32",
        "load_a": "wmma_load_16x16x16_bf16_a_shared_dyn",
        "load_b": f"wmma_load_16x16x16_bf16_b{suffix}_shared_dyn",
        "compute": f"wmma_sync_16x16x16_bf16bf16f32{suffix}",
        "store": "wmma_store_16x16x16_f32_shared",
    }


def mma_group() -> dict[str, str]:
    """Return the names of what a 16x8x8 product takes: the one size that TVM's rule with asynchronous copies lays out."""
    return {
        "init": "mma_init_m16n8k8_f32",
        "load_a": "mma_load_m16n8k8_bf16_A_shared_dyn",
        "load_b": "mma_load_m16n8k8_bf16_B_shared_dyn",
        "compute": "mma_sync_m16n8k8_bf16bf16f32",
        "store": "mma_store_m16n8k8_f32_global",
    }
