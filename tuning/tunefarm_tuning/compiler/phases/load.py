"""The phase ``load``: start the child processes, load the network in each, and build it untuned meanwhile, unless earlier timings will do."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tunefarm_tuning.artifact.onednn_library import ONEDNN
from tunefarm_tuning.compiler.alternatives import kernels_to_time, largest_first
from tunefarm_tuning.compiler.kernel_validation import kernel_facts
from tunefarm_tuning.compiler.model_comparison import rounding_of
from tunefarm_tuning.compiler.phases.untuned import UntunedModel, build_unless_timed
from tunefarm_tuning.compiler.references import References
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.compiler.session import CompileSession, KernelInfo, LoadedInfo
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.measure.device import device_kind, wanted_threads
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.process.model_child import compiling
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.reference.samples import SampleSummary, write_all_feeds
from tunefarm_tuning.workload.model import Model, entry_name
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.runtime_part import runtime_warning

_NO_BFLOAT16 = (
    "the network computes in bfloat16, which ONNX Runtime's CPU provider cannot: outputs were compared with those of the same "
    "network in float32, each result rounded to bfloat16; latency.onnxruntime is of the same network in float32, unrounded"
)


_LOADED_EARLY_BYTES = 256 << 20

Child = TypeVar("Child", CompileSession, DeviceRun)


class OpenCompiler(Protocol):
    """Starts a compiler for the length of a block; see `CompileJob.open_compiler`."""

    def __call__(
        self, precision: Precision, *, model: Model | None = None
    ) -> AbstractContextManager[CompileSession]:
        """Start it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """The result of the phase ``load``: child processes that are ready, inputs and expected outputs.

    Attributes:
        compiler: Builds kernels and networks. It is closed once the networks are built, the untuned one too, unless
            `other_shapes.keeps_compiler`.
        references: ONNX Runtime for each set of shapes.
        runs: `Reference.runs` of the first.
        untuned: The network without any record, built while the reference ran, if it was.
        sets: Inputs and expected outputs of every set of shapes, the user's samples first, with the tolerance of the comparison.
        samples: A summary of each of the user's files.
    """

    compiler: CompileSession
    runner: DeviceRun
    references: References
    runs: Mapping[str, Any] | None
    info: LoadedInfo
    untuned: UntunedModel
    sets: tuple[InputSet, ...]
    samples: tuple[SampleSummary, ...] = ()
    threads: int
    warnings: tuple[str, ...]


def sets_of(sets: Sequence[InputSet], entry: str) -> list[InputSet]:
    """Return the input sets of one of the library's functions."""
    return [input_set for input_set in sets if input_set.entry == entry]


@contextmanager
def opened(child: Child, cancellation: Cancellation) -> Iterator[Child]:
    """Close a child process at the end of the block, or when the compile is cancelled."""
    with closing(child), cancellation.attach(child):
        yield child


def load(
    request: CompileRequest,
    stack: ExitStack,
    open_compiler: OpenCompiler,
    make_reference: Callable[..., Reference],
) -> LoadedModel:
    """Start the child processes, which `stack` closes in the end, load the network in each, and make inputs and expected outputs."""
    # The stack unwinds from its end: a child must end before the thread that waits for it is joined.
    executor = stack.enter_context(ThreadPoolExecutor(1, "tunefarm-compile"))
    compiler = stack.enter_context(open_compiler(request.precision))
    with request.progress.phase("load"):
        # Most of the time, three processes import their libraries: they do so at the same time.
        loading = executor.submit(contextvars.copy_context().run, compiler.load)
        building = executor.submit(
            contextvars.copy_context().run, build_unless_timed, request, compiler, loading.result
        )
        ahead = executor.submit(contextvars.copy_context().run, _build_ahead, request, compiler, loading)
        # CUDA's driver reserves far more address space than it uses.
        limits = ChildLimits(memory_bytes=None if request.on_gpu else request.limits.memory_bytes)
        threads = wanted_threads(request.target, request.device)
        device_run = DeviceRun(
            request.device,
            kind=device_kind(request.target),
            threads=threads,
            limits=limits,
            folder=request.folder,
        )
        runner = stack.enter_context(opened(device_run, request.cancellation))
        threads = runner.connect()
        references = stack.enter_context(closing(References(request, make_reference, threads)))
        samples = write_all_feeds(
            request.samples,
            request.model,
            request.folder,
            limits=request.limits.of_samples(),
            limit_bytes=request.limits.samples_bytes,
            cancellation=request.cancellation,
        )
        sets: list[InputSet] = []
        runs: Mapping[str, Any] | None = None
        warnings: dict[str, None] = {}
        for number in range(len(request.model.each)):
            entry_sets, reference = references.make(number, entry_name(number), samples.fitting(number))
            sets += entry_sets
            runs = reference.runs if number == 0 else runs
            warnings |= dict.fromkeys(_warnings_of(reference))
        _prepare_baseline(request, references, sets)
        if text := runtime_warning(request.model.parts):
            warnings[text] = None
        with compiling("preparing the model"):
            info, library_warnings = _with_libraries(request, loading.result(), runner.libraries)
            warnings |= dict.fromkeys(library_warnings)
        with compiling("compiling the model"):
            untuned = building.result()
            if untuned.compiler is None:
                _load_on_device(request, runner, untuned.library)
            ahead.result()
        runner.use_parts(info.parts, [part.to_json() for part in sets[0].parts])
        rounding = rounding_of(request.precision, info.storage)
    return LoadedModel(
        compiler=compiler,
        runner=runner,
        references=references,
        runs=runs,
        info=info,
        untuned=untuned,
        sets=tuple(input_set.with_rounding(rounding) for input_set in sets),
        samples=samples.summaries,
        threads=threads,
        warnings=(*warnings, *info.warnings),
    )


def _prepare_baseline(request: CompileRequest, references: References, sets: Sequence[InputSet]) -> None:
    """Have ONNX Runtime load the network that it is timed with later, while the compiler works; not a large one, for want of memory."""
    if (
        request.times_onnx_runtime
        and len(request.model.each) == 1
        and request.model.path.stat().st_size <= _LOADED_EARLY_BYTES
    ):
        references.of(0).prepare_timed(sets_of(sets, entry_name(0))[0].inputs)


def _load_on_device(request: CompileRequest, runner: DeviceRun, library: Path) -> None:
    """Load the network on the device, which it is timed on later, while kernels are compiled; one that fails, fails again there.

    Large ones would take memory from the compiler; those with parts cannot be loaded without these.
    """
    if request.model.parts or library.stat().st_size > _LOADED_EARLY_BYTES:
        return
    with suppress(RunFailed):
        runner.call("load_model", {"path": str(library)}, timeout_sec=request.limits.model_sec)


def _build_ahead(request: CompileRequest, compiler: CompileSession, loading: Future[LoadedInfo]) -> None:
    """Schedule and compile, on all cores, the kernels of the records, and those that they will be checked against."""
    info = loading.result()
    tasks: list[tuple[KernelInfo, tuple[KernelInfo, ...]]] = [(task, ()) for task in info.tasks]
    tasks += [(alternative.tuned, alternative.fixed) for alternative in info.alternatives]
    kernels: dict[str, tuple[str, TuningRecord | None]] = {}
    for task, fixed in tasks:
        record = request.find_record(task)[0]
        if record is None:
            continue
        kernels[f"{task.name} tuned"] = (task.name, record)
        facts = kernel_facts(task, record, seed=request.seed, limits=request.limits)
        if request.findings.peek("kernel", facts) is None:
            kernels |= {kernel.name: (kernel.name, None) for kernel in (task, *fixed)}
    only_timed: dict[str, None] = {}
    if request.spare_sec(1.0):  # alternatives without a record will be timed by their default schedules
        direct = {task.workload_key: task for task in info.tasks}
        for number in largest_first(info.alternatives):
            alternative = info.alternatives[number]
            timed = kernels_to_time(
                alternative,
                direct[alternative.workload_key],
                request.findings,
                seed=request.seed,
                limits=request.limits,
            )
            only_timed |= dict.fromkeys(kernel.name for kernel in timed if kernel.name not in kernels)
    if kernels or only_timed:
        compiler.build_ahead(list(kernels.values()), tuple(only_timed))


def _with_libraries(
    request: CompileRequest, info: LoadedInfo, versions: Mapping[str, str]
) -> tuple[LoadedInfo, list[str]]:
    """Return the network with the alternatives of libraries that the device has, and sentences on those that it lacks."""
    if not request.libraries:
        return info, []
    alternatives = tuple(
        replace(alternative, library_version=versions.get(alternative.library, ""))
        for alternative in info.alternatives
        if not alternative.library or alternative.library in versions
    )
    warnings = []
    if ONEDNN not in versions:
        warnings.append(
            "the target asks for -libs=dnnl, but the device has no oneDNN: its kernels are all tunefarm's own (on the device: pip "
            "install 'tunefarm[onednn]')"
        )
    return replace(info, alternatives=alternatives), warnings


def _warnings_of(reference: Reference) -> list[str]:
    warnings = []
    if reference.random_fails:
        warnings.append(f"outputs were compared only on samples: {reference.random_fails}")
    if reference.integers != "random":
        warnings.append(
            f"integer inputs were all {reference.integers}: ONNX Runtime cannot run the model on random integers"
        )
    if reference.bfloat16:
        warnings.append(_NO_BFLOAT16)
    return warnings
