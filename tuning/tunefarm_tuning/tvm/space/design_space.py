"""MetaSchedule's design spaces as a config space, and configs as schedules.

MetaSchedule's rules turn a workload into a few *sketches*: traces of schedule instructions, some of which sample
(a tiling, a category, a loop to compute at). Each sampling instruction is a knob. A config replaces the decisions of one
sketch's trace; the trace is then run on the workload again. Small workloads have one knob more (`thread_choice`), and tiles
of extents that no good tile divides may leave rests (`rest_tiles`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.space.config import Config, Decision
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.gpu_tiling import GpuNest
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.space.tail_tiles import num_rests
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tensor_intrinsics import import_intrinsics
from tunefarm_tuning.tvm.default_schedules.stage import Machine
from tunefarm_tuning.tvm.space.cuda_space import SpaceMaker, cuda_spaces
from tunefarm_tuning.tvm.space.cuda_tiling import gpu_nest_of
from tunefarm_tuning.tvm.space.loop_nest import Nest, block_of, computation_of
from tunefarm_tuning.tvm.space.tail_tiles import axis_rests, leaves_weights, with_marks, with_rests
from tunefarm_tuning.tvm.space.thread_choice import leave_out_threads, thread_knob
from tunefarm_tuning.workload.computation import Computation

_SEED = 1
"""Of everything random here: equal workloads and targets give equal spaces and schedules, in every process."""

_LOCATION_PROBES = 5
_TILE, _CATEGORICAL, _LOCATION = "SamplePerfectTile", "SampleCategorical", "SampleComputeLocation"
_PACKS_WEIGHTS = "RewriteLayout"
_PARTITIONED = "SamplePartitionedTile"


class DesignSpace:
    """The sketches of one workload for one target.

    Concurrency: one thread.

    Args:
        mod: A normalised workload (`Workload.ir`): one PrimFunc, called ``main``.
        target: What to schedule for.

    Attributes:
        context: Of the last of its spaces; a GPU's workload can have several.
        first_sketch: Number of that one's first sketch.

    Raises:
        InvalidInputError: If no rule of TVM's can schedule the workload; code ``"cannot-be-scheduled"``.
    """

    def __init__(self, mod: tvm.IRModule, target: Target) -> None:
        self._mod = mod
        self._target = target
        self._probed: dict[tuple[str, ...], list[set[int]]] = {}
        self._traces: list[Trace] = []
        self._spaces: list[SpaceMaker | None] = []  # of each trace
        self._postprocs: list[list[Any]] = []  # of each trace
        makers = list(cuda_spaces(mod, target)) if target.kind == "cuda" else [None]
        for maker in makers:
            try:
                self.context = _context(mod, target) if maker is None else maker.context(mod, _SEED)
                found = (
                    [sketch.trace for sketch in self.context.generate_design_space()]
                    if maker is None
                    else maker.sketches(self.context)
                )
            except Exception as error:
                if maker is not makers[-1]:
                    continue  # rules for tensor cores fail on shapes that do not fit them
                raise InvalidInputError(
                    f"TVM cannot schedule this workload for {target.key}: {clean(str(error), 300)}",
                    code="cannot-be-scheduled",
                ) from error
            self.first_sketch = len(self._traces)
            self._traces += found
            self._spaces += [maker] * len(found)
            self._postprocs += [list(self.context.space_generator.postprocs)] * len(found)
        self._threads = thread_knob(self._fresh_schedule(_SEED), target)

    @cached_property
    def config_space(self) -> ConfigSpace:
        """The space of all configs; made when first asked for (a second for a large convolution)."""
        sketches = []
        gpu: list[GpuNest | None] = []
        for trace, nest, rests, space in zip(
            self._traces, self._nests, self._rests, self._spaces, strict=True
        ):
            knobs = (*self._knobs(trace, rests), *self._own_knobs)
            gpu.append(self._gpu_nest(trace, nest, space))
            axes = nest.axes if nest.block == self._block else (-1,) * len(nest.axes)
            axes += (-1,) * len(self._own_knobs)
            if nest.block == self._block and (space is None or not space.tensor_cores):
                sketches.append(Sketch(knobs, axes, nest.structure, nest.epilogue_level))
            else:
                sketches.append(Sketch(knobs, axes))
        return ConfigSpace(sketches, self._computation, gpu)

    def _gpu_nest(self, trace: Trace, nest: Nest, space: SpaceMaker | None) -> GpuNest | None:
        if space is None or nest.block != self._block:
            return None
        return gpu_nest_of(
            trace,
            list(sampling(trace)),
            self._computation,
            tensor_cores=space.tensor_cores,
            target=self._target,
            max_shared_bytes=space.max_shared_bytes,
        )

    @cached_property
    def _nests(self) -> list[Nest]:
        return [Nest(trace, list(sampling(trace))) for trace in self._traces]

    @cached_property
    def _block(self) -> str:
        """The name of the main block; empty where nothing is tiled."""
        return next((nest.block for nest in self._nests if nest.block), "")

    @cached_property
    def _computation(self) -> Computation | None:
        return computation_of(self._mod, self._block, self._target) if self._block else None

    @cached_property
    def _rests(self) -> list[tuple[tuple[int, ...], ...]]:
        """For each sketch and sampling instruction: what its tiles may multiply to besides the extent."""
        none: list[tuple[tuple[int, ...], ...]] = [((),) * len(nest.axes) for nest in self._nests]
        if self._target.kind != "llvm" or self._computation is None:
            return none
        rests = axis_rests(self._computation, Machine.of(self._target).vector_bytes)
        return [
            tuple(rests[axis] if axis >= 0 else () for axis in nest.axes)
            if nest.block == self._block
            else empty
            for nest, empty in zip(self._nests, none, strict=True)
        ]

    @property
    def _own_knobs(self) -> tuple[Knob, ...]:
        """The knobs that are no sampling instructions, behind those that are."""
        return () if self._threads is None else (self._threads,)

    def config_of(self, sketch: int, trace: Trace) -> Config:
        """Return the config that gives a trace of a sketch; threads share its work where they can."""
        decisions: list[Decision] = [decision_of(trace, one) for one in sampling(trace)]
        return Config(sketch, (*decisions, *(0 for _ in self._own_knobs)))

    def apply(self, config: Config) -> tuple[Schedule, Config]:
        """Return the workload scheduled by a config, and the config as applied.

        The two configs differ where a compute location was not legal: TVM takes the nearest outer one that is.
        Weights that may lie in any order (`packing`) are put into the kernel's own by a block at its head.

        Raises:
            InvalidInputError: If the config does not fit the workload, or the result is not legal for the
                target (too many threads, say); code ``"config-does-not-apply"``.
        """
        trace, own, with_rest = self._decided(config)
        schedule = self._fresh_schedule(_SEED)
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
        except Exception as error:
            raise _does_not_apply(config, str(error)) from error
        found = (decision_of(schedule.trace, one) for one in sampling(schedule.trace))
        taken = (config.decisions[place] if place in with_rest else one for place, one in enumerate(found))
        applied = Config(config.sketch, (*taken, *own))
        if self._threads is not None and not self._threads.values[own[0]]:
            leave_out_threads(schedule)
        schedule.enter_postproc()
        for postproc in self._postprocs_for(config.sketch, with_rest):
            try:
                done = postproc.apply(schedule)
            except Exception as error:
                raise _does_not_apply(config, str(error)) from error
            if not done:
                raise _does_not_apply(config, f"{type(postproc).__name__} refuses the kernel")
        return with_marks(schedule) if with_rest else schedule, applied

    def leaves_rests(self, config: Config) -> bool:
        """Return whether a config of this space has tiles that leave rests: no trace of MetaSchedule's has."""
        return bool(self._decided(config)[2])

    def _postprocs_for(self, sketch: int, with_rest: Collection[int]) -> list[Any]:
        if not with_rest:
            return self._postprocs[sketch]
        axes = {self._nests[sketch].axes[place] for place in with_rest}
        block = block_of(self._mod, self._block)
        leaves = leaves_weights(self._mod, block, axes)
        return [
            one for one in self._postprocs[sketch] if not (leaves and type(one).__name__ == _PACKS_WEIGHTS)
        ]

    def _decided(self, config: Config) -> tuple[Trace, tuple[int, ...], frozenset[int]]:
        """Return the sketch's trace with the config's decisions, those of our own knobs, and which tiles leave rests."""
        if not 0 <= config.sketch < len(self._traces):
            raise _does_not_apply(config, f"there are {len(self._traces)} sketches")
        trace = self._traces[config.sketch]
        knobs = list(sampling(trace))
        if len(knobs) + len(self._own_knobs) != len(config.decisions):
            raise _does_not_apply(config, f"the sketch has {len(knobs) + len(self._own_knobs)} knobs")
        decisions = dict(trace.decisions.items())
        tiles: dict[int, tuple[int, ...]] = {}  # that leave rests
        for place, (inst, decision) in enumerate(zip(knobs, config.decisions, strict=False)):
            if not _is_legal(inst, decision_of(trace, inst), decision, self._rests[config.sketch][place]):
                raise _does_not_apply(config, f"{inst.kind.name} cannot be {decision}")
            if isinstance(decision, tuple) and prod(decision) in self._rests[config.sketch][place]:
                tiles[place] = decision
            else:
                decisions[inst] = list(decision) if isinstance(decision, tuple) else decision
        own = []
        for knob, decision in zip(self._own_knobs, config.decisions[len(knobs) :], strict=True):
            if not isinstance(decision, int) or knob.find(decision) is None:
                raise _does_not_apply(config, f"{knob.name} cannot be {decision}")
            own.append(decision)
        decided = Trace(trace.insts, decisions)
        if tiles:
            decided = with_rests(decided, {knobs[place]: tile for place, tile in tiles.items()})
        return decided, tuple(own), frozenset(tiles)

    def _fresh_schedule(self, seed: int) -> Schedule:
        return Schedule(self._mod, seed=seed, debug_mask=0, error_render_level="none")

    def _knobs(self, trace: Trace, rests: Sequence[tuple[int, ...]]) -> Iterator[Knob]:
        alike = tuple(_choice_of(one) for one in sampling(trace))
        if alike not in self._probed:  # sketches often differ behind the main block alone; probing is slow
            self._probed[alike] = self._locations(trace)
        own = [int(trace.get_decision(one)) for one in sampling(trace) if one.kind.name == _LOCATION]
        locations = (legal | {here} for legal, here in zip(self._probed[alike], own, strict=True))
        for number, inst in enumerate(sampling(trace)):
            kind = inst.kind.name
            name = f"{kind.removeprefix('Sample').lower()}_{number}"
            if kind == _TILE:
                tile = decision_of(trace, inst)
                assert isinstance(tile, tuple)
                yield Knob.tile(name, prod(tile), len(tile), int(inst.attrs[1]), rests[number])
            elif kind == _PARTITIONED:
                tile = decision_of(trace, inst)
                assert isinstance(tile, tuple)
                yield Knob.tile(name, prod(tile), len(tile), prod(tile))
            elif kind == _CATEGORICAL:
                candidates, probs = inst.attrs
                yield Knob.categorical(name, [float(c) for c in candidates], [float(p) for p in probs])
            else:
                yield Knob.location(name, sorted(next(locations)))

    def _locations(self, trace: Trace) -> list[set[int]]:
        """Return the legal choices of each compute location, in order.

        Which loops are legal depends on the decisions before (a loop of one iteration is not): so the
        choices are those of a few runs of the trace together. Others are still legal now and then.
        """
        found: list[set[int]] = [
            {int(trace.get_decision(one))} for one in sampling(trace) if one.kind.name == _LOCATION
        ]
        if not found:
            return found
        for probe in range(_LOCATION_PROBES):
            schedule = self._fresh_schedule(_SEED + probe)
            sets = iter(found)

            def provide(
                inst: Any,
                inputs: Any,
                attrs: Any,  # noqa: ARG001  (TVM's signature)
                decision: Any,
                schedule: Schedule = schedule,
                sets: Iterator[set[int]] = sets,
                probe: int = probe,
            ) -> Any:
                if inst.kind.name == _LOCATION:
                    next(sets).update(_legal_locations(schedule, inputs[0]))
                    return decision
                return decision if probe == 0 else None  # None: sample

            try:
                trace.apply_to_schedule(schedule, True, provide)
            except Exception:  # noqa: BLE001, S112  (a random run may be illegal: the others tell enough)
                continue
        return found


def apply(mod: tvm.IRModule, target: Target, config: Config) -> tuple[Schedule, Config]:
    """Return a workload scheduled by a config, and the config as applied (see `DesignSpace.apply`)."""
    return DesignSpace(mod, target).apply(config)


def _context(mod: tvm.IRModule, target: Target) -> ms.TuneContext:
    import_intrinsics(target)
    return ms.TuneContext(
        mod,
        target=tvm_target(target),
        space_generator="post-order-apply",
        search_strategy=None,
        num_threads=1,
        rand_state=_SEED,
    )


def _choice_of(inst: Any) -> str:
    """Return what an instruction chooses from, whatever its variables are called."""
    return f"{inst.kind.name} {inst.inputs[0] if inst.kind.name == _LOCATION else ''} {inst.attrs}"


def sampling(trace: Trace) -> Iterator[Any]:
    """Yield the instructions that are knobs; those of postprocessing are not."""
    for inst in trace.insts:
        name = inst.kind.name
        if name == "EnterPostproc":
            return
        if name in (_TILE, _PARTITIONED, _CATEGORICAL, _LOCATION):
            yield inst


def decision_of(trace: Trace, inst: Any) -> Decision:
    decision = trace.get_decision(inst)
    if inst.kind.name in (_TILE, _PARTITIONED):
        return tuple(int(factor) for factor in decision)
    return int(decision)


def _is_legal(inst: Any, present: Decision, decision: Decision, rests: Collection[int]) -> bool:
    """Return whether TVM will take a decision as it is; it mends some silently, and dies of others.

    A tile that leaves rests is no decision of TVM's: its numbers are put into a split.
    """
    if isinstance(present, tuple):
        return (
            isinstance(decision, tuple)
            and len(decision) == len(present)
            and min(decision) >= 1
            and (
                prod(decision) == prod(present)
                or (prod(decision) in rests and _leaves_one_rest(inst, present, decision))
            )
            and (
                inst.kind.name != _PARTITIONED
                or prod(decision[int(inst.attrs[1]) :]) % int(inst.attrs[2]) == 0
            )
        )
    if isinstance(decision, tuple):
        return False
    if inst.kind.name == _CATEGORICAL:
        return 0 <= decision < len(inst.attrs[0])
    return -2 <= decision < 1 << 31


def _leaves_one_rest(inst: Any, present: tuple[int, ...], decision: tuple[int, ...]) -> bool:
    rests = num_rests(np.array([decision], dtype=np.int64), prod(present))
    return int(rests[0]) == 1 and decision[-1] <= int(inst.attrs[1])


def _legal_locations(schedule: Schedule, block: Any) -> set[int]:
    """Return where `block` may be computed at this point of a trace's run.

    TVM takes an asked location if it is legal and the next lower legal one if it is not: so ask from above.
    """
    found: set[int] = set()
    ask = 1 << 20
    trial = schedule.copy()  # asking changes its trace alone
    while True:
        trial.sample_compute_location(block, decision=ask)
        got = int(trial.trace.get_decision(trial.trace.insts[-1]))
        if got in found:
            return found
        found.add(got)
        if got > ask or got <= -2:
            return found
        ask = got - 1


def _does_not_apply(config: Config, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"config {config.key[:200]} does not apply: {clean(why.strip() or 'TVM gave no reason', 300)}",
        code="config-does-not-apply",
    )
