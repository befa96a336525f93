"""`CompileSession`: the compiling child process, which loads the network again after a crash."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process import Access, ChildClosed, ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.process.model_child import ImportLimits
from tunefarm_tuning.process.running import OF_NETWORKS
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.samples import MAX_SAMPLE_BYTES
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.open_shape import OpenShapes
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.task import TensorSpec

_MODULE = "tunefarm_tuning.tvm.children.compile"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLimits:
    """Limits of a compile: memory, time, and how much slower than untuned a tuned kernel may be.

    Attributes:
        memory_bytes: Address space of each child process, in bytes.
        load_sec: Seconds for reading and preparing the network.
        kernel_sec: Seconds for building one kernel, and for running it.
        model_sec: Seconds for building the network, for running it once, for timing it, and for the reference run.
        kernel_ratio: How many times the untuned kernel's time a tuned kernel may take before it falls back. A little
            above one, since measurements of equal kernels differ by that.
        model_ratio: The same for the whole network.
        ablation_sec: Seconds for timing the network without one of its other algorithms, to find those that do not pay there, and half
            as many for what the others gain. 0 takes over what earlier compiles found out, also where it is uncertain.
        timing_sec: Seconds for timing the network beyond the usual number of samples, while a busy machine leaves it unclear how
            much faster it is.
        timing_blocks: Samples of the whole network at most, before that time begins to count.
        whole_sec: Seconds after which the caller stops the compile; optional work is skipped in time. None if the caller
            sets no limit.
        samples_bytes: Largest file of samples, and the most that its arrays may have together, in bytes.
    """

    memory_bytes: int = 16 << 30
    load_sec: float = 300.0
    kernel_sec: float = 60.0
    model_sec: float = 600.0
    kernel_ratio: float = 1.05
    model_ratio: float = 1.02
    ablation_sec: float = 60.0
    timing_sec: float = 5.0
    timing_blocks: int = 15
    whole_sec: float | None = None
    samples_bytes: int = MAX_SAMPLE_BYTES

    def of_samples(self) -> ImportLimits:
        """Return the limits of the child process that reads samples."""
        return ImportLimits(
            memory_bytes=self.memory_bytes, timeout_sec=self.load_sec, cpu_sec=int(2 * self.load_sec) + 1
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelInfo:
    """One workload of the network.

    Attributes:
        names: The names of its PrimFuncs; the first stands for all of them.
        weight: Calls per inference, of all names together.
        args: Shapes and dtypes of inputs and outputs, in order.
        rounding: The dtype that it rounds its results to, as for `comparison.compare_arrays`; empty if it does not round.
    """

    workload_key: str
    names: tuple[str, ...]
    weight: int
    args: tuple[TensorSpec, ...]
    rounding: str = ""

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class UntunableKernel:
    """A kernel that is compiled with its default schedule. `reason` is one of `tvm.tasks.extract.NotTunable`."""

    name: str
    weight: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeInfo:
    """Another algorithm for one workload of the network: a kernel that is a tuning task, and others of a fixed schedule.

    Attributes:
        library: Name of the library that computes it; empty for kernels of ours, which `tuned` is a tuning task of then.
        library_version: The version that the device has.
        neighbours: The workload keys of the kernels beside that workload's in the graph, in order.
        flops: Operations of a call of that workload, as the direct kernel does them.
    """

    workload_key: str
    algorithm: str
    tuned: KernelInfo
    fixed: tuple[KernelInfo, ...]
    library: str = ""
    library_version: str = ""
    neighbours: tuple[str, ...] = ()
    flops: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryInfo:
    """One of the functions of the library: the network in one set of shapes.

    Attributes:
        weight: How often the user runs it, relative to the others.
        kernels: The names of the kernels that it calls.
    """

    name: str
    weight: int
    kernels: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedInfo:
    """The loaded network: its kernels, and how its weights are stored.

    Attributes:
        entries: The library's functions, in the order of `Model.each`.
        tasks: Its tuning tasks in order of first use.
        alternatives: Other algorithms for some of the tasks, the most promising of a task first.
        storage: How its weights are stored: numbers of tensors ``stored`` in the precision and ``kept`` as they were, and
            ``bytes_before`` and ``bytes_after`` of the stored ones.
        warnings: Sentences for people about what could not be done with it.
        parts: The ONNX models of the parts that ONNX Runtime runs, in order; `Model.parts` describes them.
        llvm: The major version of TVM's LLVM.
    """

    entries: tuple[EntryInfo, ...]
    tasks: tuple[KernelInfo, ...]
    not_tunable: tuple[UntunableKernel, ...]
    cpu_features: tuple[str, ...]
    alternatives: tuple[AlternativeInfo, ...] = ()
    storage: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    parts: tuple[Path, ...] = ()
    llvm: str = ""


class CompileSession:
    """Builds libraries of one network in a child process.

    Concurrency: one caller; `close` from any thread.
    Failure: as `ChildProcess.call`; the next call loads the network again if the child died.

    Args:
        model: The network.
        target: The target to build for.
        folder: Folder of the compiler's temporary files; the caller deletes it.
        limits: Limits of the child.
        precision: How the network's weights are stored.
        objects: Where object code of kernels lies that earlier builds made; `folder` by default.
        libraries: Libraries that may compute kernels.
    """

    def __init__(
        self,
        model: Model,
        target: Target,
        folder: Path,
        limits: CompileLimits,
        precision: Precision = Precision.AS_MODEL,
        objects: Path | None = None,
        libraries: Sequence[str] = (),
    ) -> None:
        self._libraries = list(libraries)
        self._precision = precision
        self._objects = objects or folder / "objects"
        self._folder = folder
        self._model = model
        self._target = target
        self._limits = limits
        self._child = ChildProcess(
            _MODULE,
            limits=ChildLimits(memory_bytes=limits.memory_bytes),
            access=Access(reads=(model.path,), writes=(folder, self._objects), programs=True),
            # If it is killed in the middle of a link, it leaves object files as large as the weights.
            env={**OF_NETWORKS, "TMPDIR": str(folder)},
        )
        self._loaded_pid: int | None = None

    def load(self) -> LoadedInfo:
        """Read and prepare the network; return its kernels.

        Raises:
            InvalidModelError: If it cannot be compiled.
            ChildFailed: If the child died or exceeded its limits.
        """
        self._objects.mkdir(parents=True, exist_ok=True)
        # Named here: a child that was taken over would name any file of ours, and it would be packed.
        part_files = tuple(self._folder / f"part-{number}.onnx" for number in range(len(self._model.parts)))
        reply = self._child.call(
            "load",
            {
                "path": str(self._model.path.absolute()),
                "bindings": [each.binding.to_json() for each in self._model.each],
                "weights": list(self._model.weights),
                "target": self._target.to_json(),
                "precision": self._precision.value,
                "parts": [part.to_json() for part in self._model.parts],
                "part_files": [str(file) for file in part_files],
                "objects": str(self._objects.absolute()),
                "libraries": self._libraries,
            },
            timeout_sec=self._limits.load_sec * len(self._model.each),
        )
        self._loaded_pid = self._child.pid
        return LoadedInfo(
            entries=tuple(
                EntryInfo(name=entry["name"], weight=entry["weight"], kernels=frozenset(entry["kernels"]))
                for entry in reply["entries"]
            ),
            tasks=_tasks(reply["kernels"]),
            not_tunable=tuple(
                UntunableKernel(name=kernel["name"], weight=kernel["weight"], reason=kernel["not_tunable"])
                for kernel in reply["kernels"]
                if kernel["not_tunable"] is not None
            ),
            cpu_features=tuple(reply["cpu_features"]),
            alternatives=_alternatives(reply["alternatives"]),
            storage=reply["storage"],
            warnings=tuple(reply["warnings"]),
            parts=part_files,
            llvm=clean(str(reply["llvm"]), 100),
        )

    def load_other_shapes(self, timeout_sec: float | None = None) -> OpenShapes:
        """Prepare the network for all sizes of the dimensions that its file leaves open.

        Args:
            timeout_sec: How long it may take; by default as the limits say.

        Raises:
            InvalidModelError: If some of its nodes can be compiled for fixed sizes only.
        """
        self._reload()
        limit_sec = self._limits.load_sec if timeout_sec is None else min(self._limits.load_sec, timeout_sec)
        reply = self._child.call("load_other_shapes", {}, timeout_sec=limit_sec)
        return OpenShapes.from_json(reply)

    def build_kernel(
        self,
        name: str,
        path: Path,
        record: TuningRecord | None,
        *,
        default_schedules: bool = True,
        packs: bool = True,
    ) -> None:
        """Build the kernel of one of these names at `path`: by a record, by the default schedule, or without either.

        Without `packs`, the library has no functions that pack its arguments: for a kernel that is timed alone, any numbers do.

        Raises:
            InvalidInputError: If the record does not apply: ``"space-changed"`` or ``"does-not-apply"``.
        """
        self._reload()
        tuned = _tuned(record) if record else None
        how = {"default_schedules": default_schedules, "packs": packs}
        params = {"name": name, "path": str(path), "tuned": tuned, **how}
        self._child.call("build_kernel", params, timeout_sec=self._limits.kernel_sec)

    def build_ahead(
        self, kernels: Sequence[tuple[str, TuningRecord | None]], timed: Collection[str] = ()
    ) -> None:
        """Compile, on all cores, what `build_kernel` will ask for: kernels by a record or the default schedule.

        Those named in `timed` are built without `packs`, too. What fails, fails again there, with its reason.
        """
        self._reload()
        every = [(name, _tuned(record) if record else None, True) for name, record in kernels]
        every += [(name, None, False) for name in timed]
        timeout_sec = self._limits.kernel_sec * (1 + len(every))
        try:
            self._child.call("build_ahead", {"kernels": every}, timeout_sec=timeout_sec)
        except ChildClosed:
            raise
        except ChildFailed:
            return

    def build_model(
        self,
        path: Path,
        records: Mapping[str, TuningRecord],
        choices: Mapping[str, str] | None = None,
        *,
        default_schedules: bool = True,
        untuned_entries: Collection[str] = (),
        other_shapes: bool = False,
        timeout_sec: float | None = None,
    ) -> None:
        """Build the network: kernels with a record by that record, the others by default schedules.

        Args:
            path: Where to write the library. No library may have been loaded from this path before.
            records: Records by the kernel's name.
            choices: Algorithms by the workload key of the kernel that they replace.
            default_schedules: Schedule kernels without a record by rule; else their loops stay unscheduled.
            untuned_entries: Functions that use neither records nor choices, also of kernels that they share with others.
            other_shapes: Add a function for all sizes, as the last.
            timeout_sec: How long it may take; by default as the limits say.
        """
        self._reload()
        params = {
            "path": str(path),
            "tuned": {name: _tuned(record) for name, record in records.items()},
            "choices": dict(choices or {}),
            "default_schedules": default_schedules,
            "untuned_entries": sorted(untuned_entries),
            "other_shapes": other_shapes,
        }
        limit_sec = self._limits.model_sec * (len(self._model.each) + other_shapes)
        if timeout_sec is not None:
            limit_sec = min(limit_sec, timeout_sec)
        self._child.call("build_model", params, timeout_sec=limit_sec)

    def close(self) -> None:
        """End the child; a running call then raises `ChildClosed`."""
        self._child.close()

    def _reload(self) -> None:
        if not self._child.alive or self._child.pid != self._loaded_pid:
            self.load()


def _tuned(record: TuningRecord) -> dict[str, Any]:
    return {"config": record.config.to_json(), "space_key": record.space_key}


def _tasks(kernels: list[dict[str, Any]]) -> tuple[KernelInfo, ...]:
    """Merge tuning tasks that compute the same, as `extract_tasks` does."""
    return _kernel_infos([kernel for kernel in kernels if kernel["not_tunable"] is None])


def _kernel_infos(kernels: list[dict[str, Any]]) -> tuple[KernelInfo, ...]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for kernel in kernels:
        groups.setdefault(kernel["workload_key"], []).append(kernel)
    return tuple(
        KernelInfo(
            workload_key=key,
            names=tuple(kernel["name"] for kernel in group),
            weight=sum(kernel["weight"] for kernel in group),
            args=tuple(TensorSpec.from_json(spec) for spec in group[0]["args"]),
            rounding=group[0]["rounding"],
        )
        for key, group in groups.items()
    )


def _alternatives(alternatives: list[dict[str, Any]]) -> tuple[AlternativeInfo, ...]:
    """Read alternatives; a tuned kernel that several of them share has all its names in each."""
    tuned = {
        task.workload_key: task
        for task in _kernel_infos([alternative["kernel"] for alternative in alternatives])
    }
    return tuple(
        AlternativeInfo(
            workload_key=alternative["workload_key"],
            algorithm=alternative["algorithm"],
            library=alternative["library"],
            neighbours=tuple(alternative["neighbours"]),
            flops=alternative["flops"],
            tuned=replace(
                tuned[alternative["kernel"]["workload_key"]], weight=alternative["kernel"]["weight"]
            ),
            fixed=tuple(
                KernelInfo(
                    workload_key=name,
                    names=(name,),
                    weight=alternative["kernel"]["weight"],
                    args=tuple(TensorSpec.from_json(spec) for spec in args),
                )
                for name, args in alternative["fixed"].items()
            ),
        )
        for alternative in alternatives
    )
