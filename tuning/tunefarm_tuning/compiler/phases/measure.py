"""The phase ``measure``: time the network beside the untuned one and the baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from tunefarm_text.quantities import seconds
from tunefarm_tuning.compiler.baselines import Baselines, open_baselines
from tunefarm_tuning.compiler.kernel_sums import KernelSums, kernel_sums
from tunefarm_tuning.compiler.model_comparison import ModelComparison
from tunefarm_tuning.compiler.model_timing import SideBySide, compare_latency, rounds_for
from tunefarm_tuning.compiler.phases.build_model import BuiltModels, Fallback
from tunefarm_tuning.compiler.phases.check_model import CheckedModel, check_untuned, does_not_run
from tunefarm_tuning.compiler.phases.known_latency import LatencyCacheEntry, TimedBefore
from tunefarm_tuning.compiler.phases.load import LoadedModel, OpenCompiler, sets_of
from tunefarm_tuning.compiler.phases.partly_untuned import build_partly_untuned
from tunefarm_tuning.compiler.phases.untuned import note_timed
from tunefarm_tuning.compiler.report import why_no_baseline
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.compiler.runtime_parts import PartTimes, time_parts
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.baselines.baseline import BaselineFacts
from tunefarm_tuning.measure.device_run import RunFailed
from tunefarm_tuning.measure.gpu.baseline import budget_sec, time_baselines
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.workload.model import entry_name

_MAIN = entry_name(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTiming:
    """The latency of one of the library's functions.

    Attributes:
        latency: By name: ``"tuned"`` is the artifact's, ``"untuned"``, and the baselines that were timed.
        rejected: The latency of a tuned function that was slower than the untuned one.
        fallback: Why its tuned kernels are left out; None if they are not.
        before: When an earlier compile measured the latencies; None if this one did.
        alone: What the kernels take alone, which decided whether it is tuned; None if the latencies did.
        baselines: What is known of the other runtimes that were asked for, by name.
    """

    latency: Mapping[str, Latency]
    rejected: Latency | None = None
    fallback: Fallback | None = None
    before: TimedBefore | None = None
    alone: KernelSums | None = None
    baselines: Mapping[str, BaselineFacts] = field(default_factory=dict)

    @property
    def as_untuned(self) -> EntryTiming:
        """The timing once its tuned kernels are left out."""
        return replace(self, latency={**self.latency, "tuned": self.latency["untuned"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModel:
    """The result of the phase ``measure``: the network that goes into the artifact.

    Attributes:
        entries: The timing of each of the library's functions, by its name.
        baselines: Latencies of a GPU's baselines, by name.
        not_timed: Why a GPU's baseline was not timed, by its name.
        fallback: Why no tuned kernel is used at all.
        parts: The times of the parts that ONNX Runtime runs; None if there are none.
    """

    library: Path
    comparison: ModelComparison
    entries: Mapping[str, EntryTiming]
    baselines: Mapping[str, Latency] = field(default_factory=dict)
    not_timed: Mapping[str, str] = field(default_factory=dict)
    fallback: Fallback | None = None
    warnings: tuple[str, ...] = ()
    parts: PartTimes | None = None

    @property
    def main(self) -> EntryTiming:
        """The timing in the main set of shapes."""
        return self.entries[_MAIN]

    @property
    def latency(self) -> Mapping[str, Latency]:
        """The latencies in the main set of shapes, of a GPU's baselines, too."""
        return {**self.main.latency, **self.baselines}

    @property
    def baselines_sec(self) -> dict[str, float]:
        """Seconds that each of the other runtimes took of the compile, over all sets of shapes."""
        return {
            name: sum(entry.baselines[name].took_sec for entry in self.entries.values())
            for name in self.main.baselines
        }

    @property
    def fallen(self) -> Mapping[str, Fallback]:
        """Why tuned kernels are left out in some of the library's functions."""
        return {name: entry.fallback for name, entry in self.entries.items() if entry.fallback is not None}


def time_model(
    request: CompileRequest,
    loaded: LoadedModel,
    built: BuiltModels,
    checked: CheckedModel,
    open_compiler: OpenCompiler,
) -> TimedModel:
    """Time the network beside the untuned one and the baselines; fall back to the untuned one where that is faster.

    Timings that other work disturbed do not decide that; if time runs out before better ones, the kernels' own times do.

    Raises:
        InvalidModelError: If the untuned network does not run, or is wrong when it is needed as a fallback.
    """
    with request.progress.phase("measure"):
        timed = _settled(request, loaded, built, checked, open_compiler)
        if request.model.parts:
            timed = replace(timed, parts=_time_parts(request, loaded, timed))
        if not request.on_gpu:
            return timed
        latency, not_timed = time_baselines(
            request.model,
            loaded.sets[0].inputs,
            why_no_baseline(wanted=request.baseline, here=True),
            budget_sec(request.limits.whole_sec, request.progress.elapsed_sec),
            request.cancellation,
            loaded.runner if request.device is not None else None,
        )
        return replace(timed, baselines=latency, not_timed=not_timed)


def _time_parts(request: CompileRequest, loaded: LoadedModel, timed: TimedModel) -> PartTimes:
    try:
        return time_parts(
            loaded.runner,
            timed.library,
            loaded.sets[0].inputs,
            request.limits,
            timed.latency["tuned"].median_sec,
        )
    except RunFailed as error:
        raise does_not_run(error) from error


def _settled(
    request: CompileRequest,
    loaded: LoadedModel,
    built: BuiltModels,
    checked: CheckedModel,
    open_compiler: OpenCompiler,
) -> TimedModel:
    """Time the network; return it without the tuned kernels where they do not pay."""
    entries = _time_all(request, loaded, built, checked)
    timed = TimedModel(
        library=checked.library, comparison=checked.comparison, entries=entries, fallback=checked.fallback
    )
    slow = timed.fallen.keys() - checked.fallen.keys()
    if not slow:
        return timed
    partly = build_partly_untuned(request, loaded, built, timed.fallen, open_compiler)
    if partly is not None:
        return replace(timed, library=partly[0], comparison=partly[1])
    reason = next(entries[name].fallback for name in entries if name in slow)
    entries = {name: replace(entry.as_untuned, fallback=reason) for name, entry in entries.items()}
    fallen = check_untuned(request, loaded, checked.untuned, open_compiler)
    if fallen.library != checked.untuned.library:  # its unscheduled loops were not timed yet
        again = _time_all(request, loaded, built, fallen)
        entries = {name: replace(entries[name], latency=again[name].latency) for name in entries}
    return replace(
        timed,
        library=fallen.library,
        comparison=fallen.comparison,
        entries=entries,
        fallback=reason,
        warnings=fallen.warnings,
    )


def _time_all(
    request: CompileRequest, loaded: LoadedModel, built: BuiltModels, checked: CheckedModel
) -> dict[str, EntryTiming]:
    timings: dict[str, EntryTiming] = {}
    count = len(loaded.info.entries)
    for number, entry in enumerate(loaded.info.entries):

        def on_round(done: float, number: int = number) -> None:
            request.progress.step((number + done) / count)

        fallback = checked.fallen.get(entry.name)
        untuned = checked.library == checked.untuned.library or fallback is not None
        timing = _time_entry(request, loaded, built, checked, number, untuned=untuned, on_round=on_round)
        timings[entry.name] = timing if fallback is None else replace(timing, fallback=fallback)
    return timings


def _baselines(
    request: CompileRequest, loaded: LoadedModel, number: int, input_set: InputSet
) -> AbstractContextManager[Baselines]:
    if not request.baselines:
        return nullcontext(Baselines())
    return open_baselines(
        request.baselines,
        request.model.each[number],
        input_set,
        loaded.references.of(number),
        threads=loaded.threads,
        limits=request.limits,
        cancellation=request.cancellation,
        on_gpu=request.on_gpu,
        device=None if request.here else loaded.runner,
        folder=request.folder,
    )


def _time_entry(
    request: CompileRequest,
    loaded: LoadedModel,
    built: BuiltModels,
    checked: CheckedModel,
    number: int,
    *,
    untuned: bool,
    on_round: Callable[[float], None],
) -> EntryTiming:
    """Time one of the library's functions; say why it falls back if it crashes or is slower than the untuned one."""
    try:
        timing, slower = _sample_entry(
            request, loaded, built, checked, number, untuned=untuned, on_round=on_round
        )
    except RunFailed as error:
        if untuned:
            raise does_not_run(error) from error
        fallback = Fallback(
            reason=MissReason.CRASHED, message=f"the tuned network, while it was timed: {error.message}"
        )
        timing = _time_entry(request, loaded, built, checked, number, untuned=True, on_round=on_round)
        return replace(timing, fallback=fallback)
    if slower is False:
        return timing
    tuned = timing.latency["tuned"]
    told = timings_in_words(tuned, timing.latency["untuned"], request.limits.model_ratio, slower=slower)
    if slower is None:
        alone = kernel_sums(
            built.direct,
            built.alternatives,
            loaded.info.entries[number],
            network_sec=min(timing.latency["untuned"].samples_sec),
        )
        timing = replace(timing, alone=alone)
        if alone.pays:
            return timing
        told += f", too uncertain to decide; {alone}"
    fallback = Fallback(reason=MissReason.SLOWER_THAN_UNTUNED, message=told)
    return replace(timing.as_untuned, rejected=tuned, fallback=fallback)


def _sample_entry(
    request: CompileRequest,
    loaded: LoadedModel,
    built: BuiltModels,
    checked: CheckedModel,
    number: int,
    *,
    untuned: bool,
    on_round: Callable[[float], None],
) -> tuple[EntryTiming, bool | None]:
    """Time one of the library's functions beside the untuned one, unless an earlier compile has; say whether it is slower (`compare_latency`).

    Raises:
        RunFailed: If the network crashes.
    """
    entry = entry_name(number)
    use_reference = request.times_onnx_runtime
    libraries = {"untuned": checked.untuned.library}
    if not untuned:
        libraries = {"tuned": checked.library, **libraries}
    input_set = sets_of(loaded.sets, entry)[0]
    remember = checked.library == built.tuned and not untuned
    with _baselines(request, loaded, number, input_set) as baselines:
        cached = LatencyCacheEntry(
            request=request,
            built=built,
            input_set=input_set,
            number=number,
            threads=loaded.threads,
            baseline=use_reference,
            baselines=baselines,
        )
        if remember and (known := cached.known_latency(checked.library, loaded.runner)):
            return EntryTiming(latency=known[0], before=known[1], baselines=known[2]), False
        checked.untuned.build()
        networks = SideBySide(
            device=loaded.runner,
            libraries=libraries,
            reference=loaded.references.of(number) if use_reference else None,
            others=baselines.running,
            inputs=input_set.inputs,
            entry=entry,
            threads=loaded.threads,
        )
        latency, slower = compare_latency(
            networks,
            limits=replace(request.limits, timing_sec=request.spare_sec(request.limits.timing_sec)),
            on_round=on_round,
            rounds=min(rounds_for(len(loaded.info.entries)), request.limits.timing_blocks),
        )
    latency.setdefault("tuned", latency["untuned"])
    if remember and slower is False:
        is_known_later = cached.note_latency(latency)
        if is_known_later and len(loaded.info.entries) == 1:
            note_timed(request, loaded.info)
    return EntryTiming(latency=latency, baselines=baselines.facts), slower


def timings_in_words(tuned: Latency, untuned: Latency, ratio: float, *, slower: bool | None) -> str:
    """Say how long a network took, and why it counts as slower where its median does not show that (`compare_latency`)."""
    told = f"the network took {seconds(tuned.median_sec)} tuned and {seconds(untuned.median_sec)} untuned"
    if slower and tuned.median_sec <= ratio * untuned.median_sec:
        told += "; other work disturbed these timings, and in most blocks the tuned network took longer"
    return told
