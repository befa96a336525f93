"""MetaSchedule's design spaces as a config space, and configs as schedules.

MetaSchedule's rules turn a workload into a few *sketches*: traces of schedule instructions, some of which sample
(a tile, a category, a loop to compute at). Each sampling instruction is a knob. A config replaces the decisions of one
sketch's trace; the trace is then run on the workload again. Small workloads have one more knob (`knobs.thread_knob`), tiles
of loops that no good tile divides may leave a tail (`tail_tiles`), and a bfloat16 dot product is tiled around the CPU's instruction
(`instruction_blocks`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.space.config import Config, Decision
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.gpu_tiling import GpuTiling
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tensor_intrinsics import import_intrinsics
from tunefarm_tuning.tvm.space.cuda_space import SpaceMaker, cuda_spaces, with_steps_inlined
from tunefarm_tuning.tvm.space.cuda_tiling import gpu_tiling_of
from tunefarm_tuning.tvm.space.instruction_blocks import with_instruction_block, with_scalar_loops_around
from tunefarm_tuning.tvm.space.knobs import (
    CATEGORICAL,
    LOCATION,
    PARTITIONED_TILE,
    TILE,
    choice_of,
    decision_of,
    instructions_of,
    is_legal,
    leave_out_threads,
    legal_locations,
    sampling,
    thread_knob,
)
from tunefarm_tuning.tvm.space.sketch_tiling import SketchTiling, block_of, computation_of
from tunefarm_tuning.tvm.space.tail_tiles import axis_tails, keeps_weight_order, with_marked_tails, with_tails
from tunefarm_tuning.workload.computation import Computation

_SEED = 1
"""Fixed, so that equal workloads and targets give equal spaces and schedules in every process."""

_LOCATION_PROBES = 5
"""Runs of a trace that look for legal compute locations."""
_INLINED = -2
"""TVM's number of the compute location inside of the block that reads a stage."""
_PACKS_WEIGHTS = "RewriteLayout"


class DesignSpace:
    """The sketches of a workload for a target.

    Concurrency: one thread.

    Args:
        mod: A normalised workload (`Workload.ir`): one PrimFunc, called ``main``.
        target: The target of the schedules.

    Attributes:
        module: What the sketches schedule: the workload, or the same with an instruction as a block, or, for a GPU, with steps inlined.
        context: MetaSchedule's context of the last space; a workload for a GPU can have several.
        first_sketch: Number of the first sketch of that space.

    Raises:
        InvalidInputError: If none of TVM's rules can schedule the workload; code ``"cannot-be-scheduled"``.
    """

    def __init__(self, mod: tvm.IRModule, target: Target) -> None:
        self.module = (
            with_steps_inlined(mod) if target.kind == "cuda" else with_instruction_block(mod, target)
        )
        self._has_instruction = target.kind != "cuda" and not self.module.same_as(mod)
        mod = self.module
        self._target = target
        self._probed: dict[tuple[str, ...], list[set[int]]] = {}
        self._traces: list[Trace] = []
        self._spaces: list[SpaceMaker | None] = []  # of each trace
        self._postprocs: list[list[Any]] = []  # of each trace
        makers = list(cuda_spaces(mod, target)) if target.kind == "cuda" else [None]
        for maker in makers:
            try:
                self.context = _context(mod, target) if maker is None else maker.context(mod, _SEED)
                traces = (
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
            self._traces += traces
            self._spaces += [maker] * len(traces)
            self._postprocs += [list(self.context.space_generator.postprocs)] * len(traces)
        self._threads = thread_knob(self._fresh_schedule(_SEED), target)

    @cached_property
    def config_space(self) -> ConfigSpace:
        """The space of all configs; computed when first used (a second for a large convolution)."""
        sketches = []
        gpu: list[GpuTiling | None] = []
        for trace, tiling, products, space in zip(
            self._traces, self._tilings, self._tail_products, self._spaces, strict=True
        ):
            knobs = (*self._knobs(trace, products), *self._own_knobs)
            gpu.append(self._gpu_tiling(trace, tiling, space))
            axes = tiling.axes if tiling.block == self._block else (-1,) * len(tiling.axes)
            axes += (-1,) * len(self._own_knobs)
            if tiling.block == self._block and (space is None or not space.tensor_cores):
                sketches.append(Sketch(knobs, axes, tiling.structure, tiling.epilogue_level))
            else:
                sketches.append(Sketch(knobs, axes))
        return ConfigSpace(sketches, self._computation, gpu)

    def _gpu_tiling(self, trace: Trace, tiling: SketchTiling, space: SpaceMaker | None) -> GpuTiling | None:
        if space is None or tiling.block != self._block:
            return None
        return gpu_tiling_of(
            trace,
            list(sampling(trace)),
            self._computation,
            tensor_cores=space.tensor_cores,
            target=self._target,
            max_shared_bytes=space.max_shared_bytes,
        )

    @cached_property
    def _tilings(self) -> list[SketchTiling]:
        return [SketchTiling(trace, list(sampling(trace))) for trace in self._traces]

    @cached_property
    def _block(self) -> str:
        """Name of the main block; empty if no sketch tiles a block."""
        return next((tiling.block for tiling in self._tilings if tiling.block), "")

    @cached_property
    def _computation(self) -> Computation | None:
        return computation_of(self.module, self._block, self._target) if self._block else None

    @cached_property
    def _tail_products(self) -> list[tuple[tuple[int, ...], ...]]:
        """For each sketch and sampling instruction: products, other than the extent, that its tiles may have."""
        none: list[tuple[tuple[int, ...], ...]] = [((),) * len(tiling.axes) for tiling in self._tilings]
        if self._target.kind != "llvm" or self._computation is None:
            return none
        products = axis_tails(self._computation)
        return [
            tuple(products[axis] if axis >= 0 else () for axis in tiling.axes)
            if tiling.block == self._block
            else empty
            for tiling, empty in zip(self._tilings, none, strict=True)
        ]

    @property
    def _own_knobs(self) -> tuple[Knob, ...]:
        """The knobs after those of the sampling instructions."""
        return () if self._threads is None else (self._threads,)

    def config_of(self, sketch: int, trace: Trace) -> Config:
        """Return the config of a sketch's trace; if the number of threads is a knob, threads share the work."""
        decisions: list[Decision] = [decision_of(trace, inst) for inst in sampling(trace)]
        return Config(sketch, (*decisions, *(0 for _ in self._own_knobs)))

    def find_config(self, trace: Trace) -> Config | None:
        """Return the config of a trace with post-processing, by whomever it was made; None if no config gives its kernel."""
        if self._has_instruction:
            return None  # the sketches schedule another form of the workload
        instructions = instructions_of(trace)
        decisions = [decision_of(trace, inst) for inst in sampling(trace)]
        # a kernel on one thread has an instruction more than its sketch
        sketches = [
            number
            for number, sketch_trace in enumerate(self._traces)
            if instructions.startswith(instructions_of(sketch_trace))
        ]
        own_choices = product(*(range(len(knob)) for knob in self._own_knobs))
        for sketch, choices in product(sketches, list(own_choices)):
            config = Config(sketch, (*decisions, *choices))
            try:
                schedule, applied = self.apply(config)
                ours, theirs = self._fresh_schedule(_SEED), self._fresh_schedule(_SEED)
                for each, replayed in ((schedule.trace, ours), (trace, theirs)):
                    Trace.apply_json_to_schedule(_as_in_a_file(each.as_json()), replayed)
            except Exception:  # noqa: BLE001, S112  (TVM has many error types; a stranger's trace may be illegal)
                continue
            if applied == config and tvm_ffi.structural_equal(ours.mod, theirs.mod):
                return config
        return None

    def apply(self, config: Config) -> tuple[Schedule, Config]:
        """Return the workload scheduled by a config, and the config as applied.

        The two configs differ if a compute location was not legal: TVM takes the nearest legal outer one.
        A block at the head of the kernel packs the weights that may lie in any order (`kernels.weight_packing`).

        Raises:
            InvalidInputError: If the config does not fit the workload, or the result is not legal for the
                target (too many threads, say); code ``"config-does-not-apply"``.
        """
        trace, own_decisions, with_tail = self._decided(config)
        schedule = self._fresh_schedule(_SEED)
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
        except Exception as error:
            raise _does_not_apply(config, str(error)) from error
        decisions = (decision_of(schedule.trace, inst) for inst in sampling(schedule.trace))
        applied_decisions = (
            config.decisions[number] if number in with_tail else decision
            for number, decision in enumerate(decisions)
        )
        applied = Config(config.sketch, (*applied_decisions, *own_decisions))
        if self._threads is not None and not self._threads.values[own_decisions[0]]:
            leave_out_threads(schedule)
        schedule.enter_postproc()
        for postproc in self._postprocs_for(config.sketch, with_tail):
            try:
                applies = postproc.apply(schedule)
            except Exception as error:
                raise _does_not_apply(config, str(error)) from error
            if not applies:
                raise _does_not_apply(config, f"{type(postproc).__name__} refuses the kernel")
        if self._has_instruction:
            try:
                schedule = with_scalar_loops_around(schedule)
            except Exception as error:  # a stage was put into the instruction
                raise _does_not_apply(config, str(error)) from error
        return with_marked_tails(schedule) if with_tail else schedule, applied

    def leaves_tails(self, config: Config) -> bool:
        """Return whether a config of this space has tiles that leave a tail. MetaSchedule's own traces have none."""
        return bool(self._decided(config)[2])

    def _postprocs_for(self, sketch: int, with_tail: Collection[int]) -> list[Any]:
        if not with_tail:
            return self._postprocs[sketch]
        axes = {self._tilings[sketch].axes[number] for number in with_tail}
        block = block_of(self.module, self._block)
        keeps_order = keeps_weight_order(self.module, block, axes)
        return [
            postproc
            for postproc in self._postprocs[sketch]
            if not (keeps_order and type(postproc).__name__ == _PACKS_WEIGHTS)
        ]

    def _decided(self, config: Config) -> tuple[Trace, tuple[int, ...], frozenset[int]]:
        """Return the trace with the config's decisions, the decisions of our own knobs, and the numbers of tiles with a tail."""
        if not 0 <= config.sketch < len(self._traces):
            raise _does_not_apply(config, f"there are {len(self._traces)} sketches")
        trace = self._traces[config.sketch]
        knobs = list(sampling(trace))
        if len(knobs) + len(self._own_knobs) != len(config.decisions):
            raise _does_not_apply(config, f"the sketch has {len(knobs) + len(self._own_knobs)} knobs")
        decisions = dict(trace.decisions.items())
        tiles: dict[int, tuple[int, ...]] = {}  # with a tail, by number of the instruction
        for number, (inst, decision) in enumerate(zip(knobs, config.decisions, strict=False)):
            if not is_legal(
                inst, decision_of(trace, inst), decision, self._tail_products[config.sketch][number]
            ):
                raise _does_not_apply(config, f"{inst.kind.name} cannot be {decision}")
            if isinstance(decision, tuple) and prod(decision) in self._tail_products[config.sketch][number]:
                tiles[number] = decision
            else:
                decisions[inst] = list(decision) if isinstance(decision, tuple) else decision
        own_decisions = []
        for knob, decision in zip(self._own_knobs, config.decisions[len(knobs) :], strict=True):
            if not isinstance(decision, int) or knob.find(decision) is None:
                raise _does_not_apply(config, f"{knob.name} cannot be {decision}")
            own_decisions.append(decision)
        decided = Trace(trace.insts, decisions)
        if tiles:
            decided = with_tails(decided, {knobs[number]: tile for number, tile in tiles.items()})
        return decided, tuple(own_decisions), frozenset(tiles)

    def _fresh_schedule(self, seed: int) -> Schedule:
        return Schedule(self.module, seed=seed, debug_mask=0, error_render_level="none")

    def _knobs(self, trace: Trace, tail_products: Sequence[tuple[int, ...]]) -> Iterator[Knob]:
        alike = tuple(choice_of(inst) for inst in sampling(trace))
        if alike not in self._probed:  # sketches often differ only after the main block, and probing is slow
            self._probed[alike] = self._locations(trace)
        taken = [int(trace.get_decision(inst)) for inst in sampling(trace) if inst.kind.name == LOCATION]
        locations = (legal | {chosen} for legal, chosen in zip(self._probed[alike], taken, strict=True))
        for number, inst in enumerate(sampling(trace)):
            kind = inst.kind.name
            name = f"{kind.removeprefix('Sample').lower()}_{number}"
            if kind == TILE:
                tile = decision_of(trace, inst)
                assert isinstance(tile, tuple)
                yield Knob.tile(name, prod(tile), len(tile), int(inst.attrs[1]), tail_products[number])
            elif kind == PARTITIONED_TILE:
                tile = decision_of(trace, inst)
                assert isinstance(tile, tuple)
                yield Knob.tile(name, prod(tile), len(tile), prod(tile))
            elif kind == CATEGORICAL:
                candidates, probs = inst.attrs
                yield Knob.categorical(name, [float(c) for c in candidates], [float(p) for p in probs])
            else:
                choices = next(locations)
                # What is put into an instruction is no vector, and does not build.
                choices = (choices - {_INLINED} if self._has_instruction else choices) or choices
                yield Knob.location(name, sorted(choices))

    def _locations(self, trace: Trace) -> list[set[int]]:
        """Return the legal choices of each compute location, in order.

        Which loops are legal depends on the decisions before (a loop of one iteration is not). So the
        choices are collected from a few runs of the trace. Rarely, others are legal, too.
        """
        locations: list[set[int]] = [
            {int(trace.get_decision(inst))} for inst in sampling(trace) if inst.kind.name == LOCATION
        ]
        if not locations:
            return locations
        for probe in range(_LOCATION_PROBES):
            schedule = self._fresh_schedule(_SEED + probe)
            sets = iter(locations)

            def provide(
                inst: Any,
                inputs: Any,
                attrs: Any,  # noqa: ARG001  (TVM's signature)
                decision: Any,
                schedule: Schedule = schedule,
                sets: Iterator[set[int]] = sets,
                probe: int = probe,
            ) -> Any:
                if inst.kind.name == LOCATION:
                    next(sets).update(legal_locations(schedule, inputs[0]))
                    return decision
                return decision if probe == 0 else None  # None: sample

            try:
                trace.apply_to_schedule(schedule, True, provide)
            except Exception:  # noqa: BLE001, S112  (a random run may be illegal; the others tell enough)
                continue
        return locations


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


def _as_in_a_file(value: Any) -> Any:
    """Return a trace's JSON as TVM reads it from a file, where true is 1."""
    if isinstance(value, Sequence | tvm_ffi.Array) and not isinstance(value, str):
        return [_as_in_a_file(item) for item in value]
    return int(value) if isinstance(value, bool) else value


def _does_not_apply(config: Config, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"config {config.key[:200]} does not apply: {clean(why.strip() or 'TVM gave no reason', 300)}",
        code="config-does-not-apply",
    )
