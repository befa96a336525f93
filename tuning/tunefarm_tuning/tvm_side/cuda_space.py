"""The design spaces of a workload for a GPU, side by side: plain CUDA cores, and tensor cores where its types fit them.

Their sketches compete in one config space. Two of TVM's rules for tensor cores are used, each as a space of its own; TVM tries
the second only where the first does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.schedule_rule import MultiLevelTilingTensorCore, ReuseType

from tunefarm_tuning.gpu_architecture import limits_of_target, number_of
from tunefarm_tuning.target import Target
from tunefarm_tuning.tvm_side.intrinsics import import_intrinsics
from tunefarm_tuning.tvm_side.tvm_target import tvm_target

WMMA, MMA = "wmma", "mma"
_STRUCTURE = "SSSRRSRS"
_BINDS = ("blockIdx.y", "blockIdx.x", "threadIdx.y")
_WMMA_DTYPES = {"float16": ("float32", "float16"), "int8": ("int32",)}
_FIRST_WITH_TENSOR_CORES = 70
_FIRST_WITH_ASYNC_COPIES = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceMaker:
    """How to make one of the design spaces of a workload.

    Attributes:
        tensor_cores: `WMMA`, `MMA` or empty.
        max_shared_bytes: What a block of its kernels may have.
    """

    tensor_cores: str
    target: tvm.target.Target
    generator: Any
    max_shared_bytes: int

    def context(self, mod: tvm.IRModule, seed: int) -> ms.TuneContext:
        return ms.TuneContext(
            mod,
            target=self.target,
            space_generator=self.generator,
            search_strategy=None,
            num_threads=1,
            rand_state=seed,
        )


def cuda_spaces(mod: tvm.IRModule, target: Target) -> Iterator[SpaceMaker]:
    """Yield how the design spaces of a workload are made; the last is the one that fits any workload.

    Imports what tensor cores need where the workload can use them: seconds, once in a process.
    """
    number = number_of(str(target.get("arch")))
    dtypes = {str(param.ty.dtype.dtype) for param in mod["main"].params}
    inputs = [dtype for dtype in _WMMA_DTYPES if dtype in dtypes]
    import_intrinsics(target, tensor_cores=bool(inputs) and number >= _FIRST_WITH_TENSOR_CORES)
    if inputs and number >= _FIRST_WITH_TENSOR_CORES:
        shared = limits_of_target(target).shared_optin_bytes
        # Their tiles are asked for when the kernel is launched, and may be as large as the GPU has them.
        roomy = Target.from_json({**target.to_json(), "max_shared_memory_per_block": shared})
        rules = list(ms.ScheduleRule.create("cuda-tensorcore"))
        chosen = {WMMA: _wmma_rule(inputs)}
        if "float16" in inputs and number >= _FIRST_WITH_ASYNC_COPIES:
            chosen[MMA] = rules[2]
        for name, rule in chosen.items():
            yield SpaceMaker(
                tensor_cores=name,
                target=tvm_target(roomy),
                generator=_generator([rules[0], rule, *rules[3:]], "cuda-tensorcore"),
                max_shared_bytes=shared,
            )
    yield SpaceMaker(
        tensor_cores="",
        target=tvm_target(target),
        generator=_generator("cuda", "cuda"),
        max_shared_bytes=int(str(target.get("max_shared_memory_per_block") or 49152)),
    )


def _generator(rules: Any, others: str) -> Any:
    return ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=others, mutator_probs=others)


def _wmma_rule(inputs: list[str]) -> Any:
    """Return TVM's rule for 16x16x16 tiles, with results in declared shared memory.

    TVM 0.27 cannot lower its own default where inputs and results differ in type: both are then in one buffer, asked for at
    launch ("tvm_access_ptr element type must match the source buffer").
    """
    from tvm.s_tir.tensor_intrin.cuda import get_wmma_intrin_group

    groups = [
        get_wmma_intrin_group("shared.dyn", "shared", dtype, result, trans_b=transposed)
        for dtype in inputs
        for result in _WMMA_DTYPES[dtype]
        for transposed in (False, True)
    ]
    return MultiLevelTilingTensorCore(
        intrin_groups=groups,
        structure=_STRUCTURE,
        tile_binds=list(_BINDS),
        max_innermost_factor=4,
        vector_load_lens=[1, 2, 4, 8],
        reuse_read=ReuseType(req="must", levels=[4], scope="shared.dyn"),
        reuse_write=ReuseType(req="must", levels=[2], scope="shared"),
        use_software_pipeline=False,
    )
