"""The design spaces of a workload for a GPU: one for CUDA cores, and up to two for tensor cores where its types fit them.

Their sketches compete in one config space. TVM has two rules for tensor cores and tries the second only where the first does not
fit; here each makes a space of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.schedule_rule import MultiLevelTiling, MultiLevelTilingTensorCore, ReuseType
from tvm.s_tir.schedule import Trace

from tunefarm_tuning.target.gpu import limits_of_target, number_of
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.launches import workspaces_of
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tensor_intrinsics import (
    FIRST_ARCHITECTURE,
    import_intrinsics,
    mma_group,
    wmma_group,
)
from tunefarm_tuning.tvm.base.tir import schedule_of, walk

WMMA, MMA = "wmma", "mma"
_STRUCTURE = "SSSRRSRS"
_BINDS = ("blockIdx.y", "blockIdx.x", "threadIdx.y")
_FETCHES = [1, 2, 4, 8]  # elements of 16 bits
_WMMA_RESULTS = {"float16": ("float32", "float16"), "bfloat16": ("float32",), "int8": ("int32",)}
_FIRST_WITH = {"float16": 70, "bfloat16": FIRST_ARCHITECTURE, "int8": 70}
_FIRST_WITH_ASYNC_COPIES = 80
_ROW, _PAD = 32, 8  # in elements of 16 bits
_MOST_NODES = 400  # of what a step's readers compute anew; the sum with a bias has 39


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceMaker:
    """Makes one design space of a workload.

    Attributes:
        tensor_cores: `WMMA`, `MMA`, or empty for CUDA cores.
        target: TVM's target, with this space's limit of shared memory.
        max_shared_bytes: Shared memory that a block of its kernels may have.
    """

    tensor_cores: str
    target: tvm.target.Target
    generator: Any
    max_shared_bytes: int

    def context(self, mod: tvm.IRModule, seed: int) -> ms.TuneContext:
        """Return MetaSchedule's context for a workload."""
        return ms.TuneContext(
            mod,
            target=self.target,
            space_generator=self.generator,
            search_strategy=None,
            num_threads=1,
            rand_state=seed,
        )

    def sketches(self, context: ms.TuneContext) -> list[Trace]:
        """Return the traces of a context's design space.

        Left out are those that a rule for tensor cores left unchanged, and those of several kernels with memory between them, if there
        are others: where each row's sum is a kernel of its own, a network cannot replay it as part of a CUDA graph.
        """
        traces, single = [], []
        for schedule in context.generate_design_space():
            if self.tensor_cores and not is_tensorized(schedule.trace):
                continue
            if self.tensor_cores == WMMA:
                _pad_rows(schedule)
            traces.append(schedule.trace)
            if not workspaces_of(schedule.mod["main"]):
                single.append(schedule.trace)
        return single or traces


def with_steps_inlined(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a workload in which element-wise steps are computed in the steps that read them.

    TVM's rules inline a step into its only reader. GELU reads a product's sum with its bias twice: one kernel would write that sum to
    memory, and a second read it back. Steps that a reduction reads stay, and those whose readers would become too long.
    """
    schedule = schedule_of(mod["main"])
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        readers = schedule.get_consumers(block)
        if not readers or not all(_is_elementwise(schedule.get(each)) for each in (block, *readers)):
            continue
        step = schedule.get(block)
        reads = sum(_count_reads(schedule.get(reader), step) for reader in readers)
        if reads * sum(1 for _ in walk(step.body)) <= _MOST_NODES:
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                schedule.compute_inline(block)
    return schedule.mod


def _is_elementwise(block: SBlock) -> bool:
    return all(int(axis.iter_type) == tirx.IterVar.DataPar for axis in block.iter_vars)


def _count_reads(reader: SBlock, step: SBlock) -> int:
    results = [region.source for region in step.writes]
    loads = (node for node in walk(reader.body) if isinstance(node, tvm.ir.TensorLoad))
    return sum(any(load.source.same_as(result) for result in results) for load in loads)


def is_tensorized(trace: Trace) -> bool:
    """Return whether a sketch uses tensor cores."""
    return any(
        inst.kind.name == "Annotate" and str(inst.attrs[0]) == "meta_schedule.auto_tensorize"
        for inst in trace.insts
    )


def _pad_rows(schedule: Schedule) -> None:
    """Pad rows of bfloat16 tiles against bank conflicts in shared memory; TVM's rule does so for float16 and int8 only."""
    for inst in schedule.trace.insts:
        if inst.kind.name == "CacheRead" and str(inst.attrs[1]) == "shared.dyn":
            tile = schedule.get(inst.outputs[0]).writes[0].source
            if str(tile.ty.dtype.dtype) == "bfloat16":
                schedule.storage_align(inst.outputs[0], 0, -2, _ROW, _PAD)


def cuda_spaces(mod: tvm.IRModule, target: Target) -> Iterator[SpaceMaker]:
    """Yield the makers of a workload's design spaces; the last one fits any workload.

    Where the workload can use tensor cores, their intrinsics are imported, which takes seconds once in a process.
    """
    number = number_of(str(target.get("arch")))
    dtypes = {str(param.ty.dtype.dtype) for param in mod["main"].params}
    inputs = [dtype for dtype, first in _FIRST_WITH.items() if dtype in dtypes and number >= first]
    import_intrinsics(target, tensor_cores=bool(inputs))
    if inputs:
        shared = limits_of_target(target).shared_optin_bytes
        # Their shared memory is requested at launch, so a block may use the GPU's maximum.
        roomy = Target.from_json({**target.to_json(), "max_shared_memory_per_block": shared})
        rules = list(ms.ScheduleRule.create("cuda-tensorcore"))
        chosen = {WMMA: _wmma_rule(inputs)}
        if number >= _FIRST_WITH_ASYNC_COPIES and "float16" in inputs:
            chosen[MMA] = rules[2]
        elif number >= _FIRST_WITH_ASYNC_COPIES and "bfloat16" in inputs:
            chosen[MMA] = _mma_rule()
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
        generator=_generator(_cuda_core_rules() if "bfloat16" in dtypes else "cuda", "cuda"),
        max_shared_bytes=int(str(target.get("max_shared_memory_per_block") or 49152)),
    )


def _generator(rules: Any, others: str) -> Any:
    return ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=others, mutator_probs=others)


def _cuda_core_rules() -> list[Any]:
    """Return TVM's rules for CUDA cores with loads of at most 16 bytes; TVM's own try 32 for bfloat16, which no GPU has."""
    tiling = MultiLevelTiling(
        structure=_STRUCTURE,
        tile_binds=["blockIdx.x", "vthread.x", "threadIdx.x"],
        max_innermost_factor=64,
        vector_load_lens=_FETCHES,
        reuse_read=ReuseType(req="must", levels=[4], scope="shared"),
        reuse_write=ReuseType(req="must", levels=[3], scope="local"),
    )
    return [tiling if isinstance(rule, MultiLevelTiling) else rule for rule in ms.ScheduleRule.create("cuda")]


def _wmma_rule(inputs: list[str]) -> Any:
    """Return TVM's rule for 16x16x16 tiles, with results in declared shared memory.

    TVM 0.27 cannot lower its own default where inputs and results differ in type: both then share one buffer that is
    requested at launch ("tvm_access_ptr element type must match the source buffer").
    """
    from tvm.s_tir.tensor_intrin.cuda import get_wmma_intrin_group

    groups = [
        wmma_group(transposed=transposed)
        if dtype == "bfloat16"
        else get_wmma_intrin_group("shared.dyn", "shared", dtype, result, trans_b=transposed)
        for dtype in inputs
        for result in _WMMA_RESULTS[dtype]
        for transposed in (False, True)
    ]
    return _tensor_core_rule(groups, ReuseType(req="must", levels=[2], scope="shared"), pipelined=False)


def _mma_rule() -> Any:
    """Return TVM's rule for 16x8x8 tiles and asynchronous copies, for bfloat16."""
    return _tensor_core_rule(
        [mma_group()], ReuseType(req="no", levels=[], scope="shared.dyn"), pipelined=True
    )


def _tensor_core_rule(groups: list[Any], reuse_write: ReuseType, *, pipelined: bool) -> Any:
    return MultiLevelTilingTensorCore(
        intrin_groups=groups,
        structure=_STRUCTURE,
        tile_binds=list(_BINDS),
        max_innermost_factor=4,
        vector_load_lens=_FETCHES,
        reuse_read=ReuseType(req="must", levels=[4], scope="shared.dyn"),
        reuse_write=reuse_write,
        use_software_pipeline=pipelined,
    )
