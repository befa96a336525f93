"""`compile`: compiles a model with its history into one artifact, which is checked before it is written.

Every tuned kernel is built and compared with its untuned form on the device; it is left out if it is wrong, slow or
crashes. The whole network is compared with ONNX Runtime and timed against it. All of this runs in child processes. The
package `phases` has one module for each phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from fnmatch import fnmatch
from pathlib import Path

from tunefarm_tuning.artifact.pack import SUFFIX
from tunefarm_tuning.compiler.job import CompileJob
from tunefarm_tuning.compiler.phases.pack import Artifact
from tunefarm_tuning.compiler.request import PHASES, CompileRequest, OnProgress, Progress
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError, InvalidInputError
from tunefarm_tuning.core.kept_files import prune
from tunefarm_tuning.measure.baselines.runtimes import parse_baselines
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.process import ChildClosed
from tunefarm_tuning.process.scratch import ScratchDir, delete
from tunefarm_tuning.records.history import History, current_history
from tunefarm_tuning.reference.samples import sample_paths
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import check_can_build
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.quantisation import check_max_error, network_precision

_KEPT = tuple(
    f"{hidden}{kind}" for hidden in ("", ".") for kind in ("kernel_*.o", "onednn_*.o", "schedule_*.json")
)
_SHA256_DIGITS = 64
_OBJECTS_BYTES = 256 << 20
"""Scheduled kernels and their object code that are kept for later compiles: some thousand kernels."""

__all__ = ["PHASES", "Artifact", "CompileLimits", "OnProgress", "compile"]


def compile(  # noqa: A001  (AutoTVM users look for this name)
    model: Model,
    target: Target | str = "host",
    *,
    output: Path | str,
    history: History | None = None,
    device: RemoteDevice | None = None,
    name: str | None = None,
    precision: str = Precision.AS_MODEL,
    max_error: float | None = None,
    baseline: bool = True,
    baselines: str | Sequence[str] = (),
    other_shapes: bool = True,
    on_progress: OnProgress | None = None,
    cancellation: Cancellation | None = None,
    limits: CompileLimits | None = None,
    goal_sec: float | None = None,
    seed: int = 0,
    samples: Path | str | Sequence[Path | str] = (),
    keep_inputs: Path | None = None,
) -> Artifact:
    """Compile a model with the best records of its history, check it, time it, and write the artifact.

    Args:
        model: From `import_model`.
        target: A target, or a name that `parse_target` reads.
        output: The file to write, which replaces an existing one. ``.tunefarm`` is appended if it has another ending.
        history: The records. By default those of the surrounding `apply_history_best` block, none outside of one.
        device: Where kernels and the network are run for the checks; None is this machine.
        name: The artifact's name; the file's name by default.
        precision: How large weights are stored, or products computed, one of `Precision`. Records apply if their tasks were extracted with the same.
        max_error: Largest mean error of an output, as a share of its root mean square, that storing weights in fewer bytes, or
            computing in bfloat16, may cost; on the samples if there are any. `quantise_model` has its own.
        baseline: Whether to time ONNX Runtime too, if the device is this machine or a GPU; on a GPU also torch.compile.
        baselines: Further runtimes to time on the CPU that is the device, if they are installed there: ``"openvino"`` (in float32),
            ``"openvino_default"`` (in what it chooses: bfloat16 on CPUs that have it), ``"litert"`` (TFLite files). A list, or a text with
            commas. One that is not installed, or fails, is a note in the report.
        other_shapes: Whether to add code for all sizes of the dimensions that the model's file leaves open, which runs the shapes
            that it was not imported for. For CPUs.
        on_progress: Called with the name of a phase (one of `PHASES`) and the share of it that is done, 0.0 to 1.0.
        cancellation: Ends the compile from another thread.
        limits: Limits of the child processes, and how much slower than untuned a tuned kernel may be.
        goal_sec: Seconds in which the compile should be done, if it can be. Work that only refines the result gets what they leave:
            timing untuned kernels for the report, timing the network without each alternative, and samples beyond the usual number
            on a busy machine. All checks are made.
        seed: Seed of the random inputs that the network is checked with.
        samples: Real inputs: an ``.npz`` file, or several, with an array per input that has the input's shape or one more
            dimension in front (see `check_samples`). The network is compared on them first, and timed on the first of them.
        keep_inputs: A file that the inputs on which the network is timed are copied to.

    Returns:
        The written artifact, with its manifest and its report. `History.coverage` says which tasks run a tuned kernel.

    Raises:
        InvalidModelError: If the model cannot be compiled or run (codes compile-failed, compile-crashed, compile-timeout,
            compile-memory, reference-failed, reference-crashed, reference-timeout, reference-memory, run-failed), or if its
            untuned network gives wrong results (code wrong-output), or its errors are larger than `max_error` (too-inaccurate).
            Nothing is written then.
        InvalidInputError: If the output's folder does not exist (no-such-folder); if there is no such baseline (unknown-baseline); if the precision is unknown, or unsupported
            for the target (unknown-precision, unsupported-precision, not-quantised), or `max_error` is no share (invalid-max-error); if this machine lacks CUDA's compiler for the target
            (no-cuda-compiler, cuda-compiler-unfit); if the samples do not fit, as `check_samples` says.
        DeviceLostError: If the device went away.
        CancelledError: If `cancellation` was used.
    """
    asked = parse_target(target)
    target = asked.without_libraries()
    check_can_build(target)
    path = Path(output)
    if path.suffix != SUFFIX:
        path = path.with_name(path.name + SUFFIX)
    if not path.parent.is_dir():
        raise InvalidInputError(f"the folder of {path} does not exist", code="no-such-folder")
    if max_error is not None:
        check_max_error(max_error)
    history = history or current_history() or History()
    cancellation = cancellation or Cancellation()
    with closing(ScratchDir()) as scratch:
        request = CompileRequest(
            model=model,
            target=target,
            libraries=asked.libraries,
            history=history,
            device=device,
            name=name or path.stem,
            precision=network_precision(precision, target, model.quantisation),
            max_error=max_error,
            baseline=baseline,
            baselines=parse_baselines(baselines),
            other_shapes=other_shapes,
            limits=limits or CompileLimits(),
            goal_sec=goal_sec,
            seed=seed,
            samples=sample_paths(samples),
            keep_inputs=keep_inputs,
            folder=scratch.path,
            progress=Progress(on_progress or (lambda _phase, _done: None), cancellation),
            cancellation=cancellation,
        )
        try:
            return CompileJob(request=request).run(path)
        except ChildClosed as error:
            raise CancelledError("the compile was cancelled") from error
        finally:
            if (objects := history.findings.objects) is not None:
                _remove_strays(objects)
                prune(objects, _KEPT, limit_bytes=_OBJECTS_BYTES)


def _remove_strays(objects: Path) -> None:
    """Remove what children left in the folders of models beside objects: no limit would count it."""
    with suppress(OSError):
        for path in objects.glob(f"{'[0-9a-f]' * _SHA256_DIGITS}/*"):
            is_folder = path.is_dir() and not path.is_symlink()
            if not is_folder and any(fnmatch(path.name, pattern) for pattern in _KEPT):
                continue
            with suppress(OSError):
                delete(path) if is_folder else path.unlink(missing_ok=True)
