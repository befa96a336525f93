"""The phases of a compile, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tunefarm_tuning.artifact.pack import pack
from tunefarm_tuning.compiler.accuracy import (
    compare_as_model,
    precision_report,
    storage_warnings,
    tolerance_of,
    wrong_because,
)
from tunefarm_tuning.compiler.alternatives import AlternativeChoice
from tunefarm_tuning.compiler.kernel_check import CheckedKernel, KernelCheck, missed
from tunefarm_tuning.compiler.model_check import ModelComparison, compare_model
from tunefarm_tuning.compiler.model_race import race_models
from tunefarm_tuning.compiler.progress import Progress
from tunefarm_tuning.compiler.report import Place, make_manifest, make_report, why_no_baseline
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession, KernelInfo, LoadedInfo
from tunefarm_tuning.compiler.verify import packed_check
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.measure.execution_device import device_kind, is_this_machine, wanted_threads
from tunefarm_tuning.measure.gpu.baseline import ONNXRUNTIME, TORCH_COMPILE, budget_sec, time_others
from tunefarm_tuning.process import ChildClosed, ChildFailed, ChildLimits
from tunefarm_tuning.process.model_child import compiling
from tunefarm_tuning.records.coverage import Coverage, MissReason
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision

_NO_BFLOAT16 = (
    "the network computes in bfloat16, which ONNX Runtime's CPU provider cannot: outputs were compared with those of the same "
    "network in float32, each result rounded to bfloat16; latency.onnxruntime is of the same network in float32, unrounded"
)

Child = TypeVar("Child", CompileSession, DeviceRun, Reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A written artifact.

    Attributes:
        manifest: As in the file.
        report: The evidence: coverage, checks, latency, fallbacks, versions.
    """

    path: Path
    manifest: Mapping[str, Any]
    report: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class CompileJob:
    """One run of `compile`; the last nine fields fill up on the way. `direct` are the kernels without alternatives."""

    model: Model
    target: Target
    history: History
    device: RemoteDevice | None
    name: str
    baseline: bool
    limits: CompileLimits
    seed: int
    folder: Path
    progress: Progress
    cancellation: Cancellation
    make_reference: Callable[..., Reference] = Reference
    make_compiler: Callable[..., CompileSession] = CompileSession
    precision: Precision = Precision.AS_MODEL
    storage: Mapping[str, int] = field(default_factory=dict)
    kernels: list[CheckedKernel] = field(default_factory=list)
    direct: list[CheckedKernel] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rejected: Latency | None = None
    plain: bool = False
    choice: AlternativeChoice | None = None
    as_model: ModelComparison | None = None
    not_timed: dict[str, str] = field(default_factory=dict)

    def run(self, output: Path) -> Artifact:
        """Do it all; see `compile` for what can go wrong."""
        with ExitStack() as stack:
            beside = stack.enter_context(ThreadPoolExecutor(1, "tunefarm-compile"))
            # A child ends before the thread that waits for it is waited for: the stack unwinds from the end.
            compiler = self._open(stack, self._new_compiler())
            with self.progress.phase("load"):
                # Most of this is waiting for three processes to import their libraries.
                loading = beside.submit(compiler.load)
                kind = device_kind(self.target)
                # CUDA's driver reserves far more address space than it uses.
                limits = ChildLimits(memory_bytes=None if kind == "cuda" else self.limits.memory_bytes)
                threads = wanted_threads(self.target, self.device)
                runner = self._open(stack, DeviceRun(self.device, kind=kind, threads=threads, limits=limits))
                threads = runner.connect()
                reference = self._open(
                    stack,
                    self.make_reference(
                        self.model,
                        self.folder,
                        threads=threads,
                        memory_bytes=self.limits.memory_bytes,
                        timeout_sec=self.limits.model_sec,
                    ),
                )
                sets = reference.make(self.seed)
                if reference.integers != "random":
                    self.warnings.append(
                        f"integer inputs were all {reference.integers}: "
                        "ONNX Runtime cannot run the model on random ones"
                    )
                if reference.bfloat16:
                    self.warnings.append(_NO_BFLOAT16)
                with compiling("preparing the model"):
                    loaded = loading.result()
                self.storage = loaded.storage
                self.warnings += loaded.warnings
                tolerance = tolerance_of(self.precision, self.storage)
                sets = [one.with_rounding(tolerance) for one in sets]
            return self._run(output, compiler, runner, reference, loaded, sets, threads)

    def _new_compiler(self, precision: Precision | None = None) -> CompileSession:
        return self.make_compiler(
            self.model, self.target, self.folder, self.limits, precision or self.precision
        )

    def _open(self, stack: ExitStack, child: Child) -> Child:
        """Have a child closed at the end, or by a cancel."""
        stack.callback(child.close)
        stack.enter_context(self.cancellation.attach(child))
        return child

    def _run(
        self,
        output: Path,
        compiler: CompileSession,
        runner: DeviceRun,
        reference: Reference,
        loaded: LoadedInfo,
        sets: list[InputSet],
        threads: int,
    ) -> Artifact:
        with self.progress.phase("check-kernels"), compiling("compiling the kernels"):
            self._check_kernels(compiler, runner, loaded, threads)
        with self.progress.phase("build-model"), compiling("compiling the model"):
            untuned = self.folder / "model-untuned.so"
            self._build_untuned(compiler, untuned)
            self.progress.step(0.5)
            tuned = self._build_tuned(compiler, untuned, sets)
        compiler.close()  # its memory is better used by what follows
        with self.progress.phase("check-model"):
            chosen, comparison = self._check_model(runner, tuned, untuned, sets)
            untuned = untuned if chosen == tuned else chosen
            if self.precision is not Precision.AS_MODEL:
                self.as_model = self._compare_as_model(runner, sets)
        with self.progress.phase("measure"):
            on_gpu = device_kind(self.target) == "cuda"
            timed = reference if self.baseline and is_this_machine(self.device) and not on_gpu else None
            fastest, latency = self._measure(runner, chosen, untuned, timed, sets[0], threads)
            if fastest != chosen:
                fastest, comparison = self._check_untuned(runner, untuned, sets)
            if fastest not in (chosen, untuned):
                _, latency = self._measure(runner, fastest, fastest, timed, sets[0], threads)
            if on_gpu:
                others, self.not_timed = time_others(
                    self.model,
                    sets[0].inputs,
                    why_no_baseline(asked=self.baseline, here=True),
                    budget_sec(self.limits.whole_sec, self.progress.elapsed_sec),
                    self.cancellation,
                    runner if self.device is not None else None,
                )
                latency |= others
        reference.close()
        if self.device is None or not on_gpu:
            runner.close()
        with self.progress.phase("pack"):
            return self._pack(
                output, fastest, loaded, comparison, latency, sets, threads, runner if on_gpu else None
            )

    @property
    def device_model(self) -> str:
        return self.device.info.model if self.device is not None else host_device_model()

    def _find(self, task: KernelInfo) -> tuple[TuningRecord | None, MissReason | None, str]:
        return self.history.find(
            task.workload_key,
            target_key=self.target.key,
            device_model=self.device_model,
            toolchain=toolchain_key(),
        )

    def _check_kernels(
        self, compiler: CompileSession, runner: DeviceRun, loaded: LoadedInfo, threads: int
    ) -> None:
        check = KernelCheck(compiler, runner, self.folder, seed=self.seed, limits=self.limits)
        for number, task in enumerate(loaded.tasks):
            record, reason, message = self._find(task)
            if record is not None:
                self.kernels.append(check.check_any(task, [record, *self.history.others(record)]))
            else:
                miss = missed(task, reason or MissReason.NO_RECORD, message)
                self.kernels.append(CheckedKernel(task=task, record=None, miss=miss))
            self.progress.step((number + 1) / len(loaded.tasks))
        if any(kernel.hit is not None for kernel in self.kernels):
            self.kernels = check.time_others(self.kernels, lambda: self.progress.step(1.0))
        self.direct = self.kernels
        self.choice = AlternativeChoice(
            compiler, runner, self.folder, self.limits, threads, lambda: self.progress.step(1.0)
        )
        self.choice.check(loaded.alternatives, self.direct, lambda task: self._find(task)[0], check)

    def _build_untuned(self, compiler: CompileSession, path: Path) -> None:
        try:
            compiler.build_model(path, {})
        except ChildClosed:
            raise
        except ChildFailed:  # the compiler died of a default schedule
            compiler.build_model(path, {}, plain=True)
            self.plain = True

    def _build_tuned(self, compiler: CompileSession, untuned: Path, sets: Sequence[InputSet]) -> Path:
        """Build the network with the kernels that passed, and the alternatives that pay; untuned where there are none."""
        records = {
            name: kernel.record
            for kernel in self.kernels
            if kernel.hit is not None and kernel.record is not None
            for name in kernel.task.names
        }
        path = self.folder / "model-tuned.so" if records else untuned
        try:
            if records:
                compiler.build_model(path, records)
        except ChildClosed:
            raise
        except (ChildFailed, InvalidInputError) as error:
            self._fall_back(MissReason.DOES_NOT_APPLY, f"the tuned network does not build: {error.message}")
            return untuned
        if self.choice is not None:
            path = self.choice.choose(path, records, sets, self._output_names)
            self.kernels = self.choice.kernels(self.direct)
        return path

    def _check_model(
        self, runner: DeviceRun, tuned: Path, untuned: Path, sets: list[InputSet]
    ) -> tuple[Path, ModelComparison]:
        if tuned != untuned:
            try:
                comparison = compare_model(runner, tuned, self._output_names, sets, self.limits)
                if comparison.ok:
                    return tuned, comparison
                self._fall_back(MissReason.WRONG_ANSWER, f"the tuned network: {comparison.message}")
            except RunFailed as error:
                self._fall_back(MissReason.CRASHED, f"the tuned network: {error.message}")
            self.progress.step(0.5)
        return self._check_untuned(runner, untuned, sets)

    def _compare_as_model(self, runner: DeviceRun, sets: list[InputSet]) -> ModelComparison | None:
        path = self.folder / "model-as-it-is.so"
        with ExitStack() as stack:
            compiler = self._open(stack, self._new_compiler(Precision.AS_MODEL))
            return compare_as_model(compiler, runner, path, self._output_names, sets, self.limits)

    def _check_untuned(
        self, runner: DeviceRun, untuned: Path, sets: list[InputSet]
    ) -> tuple[Path, ModelComparison]:
        """Compare the untuned network; its plain loops where its default schedules are wrong."""
        try:
            return untuned, self._compare_untuned(runner, untuned, sets)
        except InvalidModelError as error:
            if self.plain:
                raise
            self.warnings.append(f"default schedules were left out, plain loops are slow: {error.message}")
        plain, self.plain = self.folder / "model-plain.so", True
        with ExitStack() as stack, compiling("compiling the model"):
            self._open(stack, self._new_compiler()).build_model(plain, {}, plain=True)
        return plain, self._compare_untuned(runner, plain, sets)

    def _compare_untuned(self, runner: DeviceRun, untuned: Path, sets: list[InputSet]) -> ModelComparison:
        try:
            comparison = compare_model(runner, untuned, self._output_names, sets, self.limits)
        except RunFailed as error:
            raise _does_not_run(error) from error
        if not comparison.ok:
            raise InvalidModelError(
                f"compiled without any tuning, the model gives other results than ONNX Runtime: {comparison.message}"
                f"{wrong_because(self.precision, self.storage)}",
                code="wrong-output",
                checks=comparison.to_json(),
            )
        return comparison

    def _measure(
        self,
        runner: DeviceRun,
        chosen: Path,
        untuned: Path,
        reference: Reference | None,
        inputs: InputSet,
        threads: int,
    ) -> tuple[Path, dict[str, Latency]]:
        libraries = {"untuned": untuned} if chosen == untuned else {"tuned": chosen, "untuned": untuned}
        try:
            latency, slower = race_models(
                runner,
                libraries,
                reference,
                inputs.inputs,
                threads=threads,
                limits=self.limits,
                on_round=self.progress.step,
            )
        except RunFailed as error:
            if chosen == untuned:
                raise _does_not_run(error) from error
            self._fall_back(MissReason.CRASHED, f"the tuned network, while it was timed: {error.message}")
            return self._measure(runner, untuned, untuned, reference, inputs, threads)
        tuned = latency.setdefault("tuned", latency["untuned"])
        if slower:
            self._fall_back(
                MissReason.SLOWER_THAN_UNTUNED,
                f"the whole network: {tuned.median_sec * 1e3:.4g} ms tuned, "
                f"{latency['untuned'].median_sec * 1e3:.4g} ms untuned",
            )
            self.rejected, latency["tuned"] = tuned, latency["untuned"]
            return untuned, latency
        return chosen, latency

    def _fall_back(self, reason: MissReason, message: str) -> None:
        """Leave out every kernel that was still in."""
        self.warnings.append(f"all kernels fell back to untuned: {message}")
        if self.choice is not None:
            self.choice.leave_out(self.choice.chosen, message)
        self.kernels = [
            kernel if kernel.miss else replace(kernel, miss=missed(kernel.task, reason, message))
            for kernel in self.direct
        ]

    def _pack(
        self,
        output: Path,
        library: Path,
        loaded: LoadedInfo,
        comparison: ModelComparison,
        latency: dict[str, Latency],
        sets: list[InputSet],
        threads: int,
        runner: DeviceRun | None,
    ) -> Artifact:
        coverage = Coverage(
            hits=tuple(kernel.hit for kernel in self.kernels if kernel.hit is not None),
            misses=tuple(kernel.miss for kernel in self.kernels if kernel.miss is not None),
        )
        if all(one.comparable == 0 for one in comparison.outputs):
            self.warnings.append("no output had a finite number: the comparison says little")
        self.warnings += storage_warnings(self.precision, self.storage)
        here = is_this_machine(self.device)
        report = make_report(
            kernels=self.kernels,
            not_tunable=loaded.not_tunable,
            coverage=coverage,
            comparison=comparison,
            latency=latency,
            rejected=self.rejected,
            no_baseline=self.not_timed.get(ONNXRUNTIME, "")
            if device_kind(self.target) == "cuda"
            else why_no_baseline(asked=self.baseline, here=here),
            no_torch_compile=self.not_timed.get(TORCH_COMPILE, ""),
            place=Place(device_model=self.device_model, this_machine=here, threads=threads, seed=self.seed),
            warnings=self.warnings,
            phases_sec=self.progress.phases_sec,
            alternatives=self.choice.to_json() if self.choice is not None else {},
            replaced=self.choice.replaced(self.direct) if self.choice is not None else (),
            precision=precision_report(self.precision, self.storage, comparison, self.as_model),
        )
        manifest = make_manifest(
            name=self.name,
            model=self.model,
            target=self.target,
            loaded=loaded,
            library=library,
            device_model=self.device_model,
            checked_here=here,
            threads=threads,
            kernels=self.kernels,
            report=report,
            tolerance=tolerance_of(self.precision, self.storage),
        )
        complete = pack(
            output,
            library=library,
            manifest=manifest,
            report=report,
            records=[k.record for k in self.kernels if k.hit is not None and k.record is not None],
            # Once more the way its user will: by its own loader, in a fresh process.
            check=packed_check(sets, self.limits, self.cancellation, None if here else runner)
            if here or runner is not None
            else None,
        )
        self.history.coverage = coverage
        return Artifact(path=output, manifest=complete, report=report)

    @property
    def _output_names(self) -> list[str]:
        return [spec.name for spec in self.model.outputs]


def _does_not_run(error: RunFailed) -> InvalidModelError:
    message = f"the compiled model does not run: {error.message}"
    return InvalidModelError(message, code="run-failed", cause=error.code)
