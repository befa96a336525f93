"""`compile`: a model and its history become one artifact, which is proven before it is written.

Every tuned kernel is built, run beside its untuned form on the device, and left out if it is wrong, slow or
crashes. The whole network is compared with ONNX Runtime and timed against it. All of that in child processes.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tunefarm_tuning.artifact.pack import SUFFIX
from tunefarm_tuning.compiler.job import Artifact, CompileJob
from tunefarm_tuning.compiler.progress import PHASES, OnProgress, Progress
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError, InvalidInputError
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.process import ChildClosed
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.records.history import History, current_history
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import check_can_build
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision, parse_precision

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
    baseline: bool = True,
    on_progress: OnProgress | None = None,
    cancellation: Cancellation | None = None,
    limits: CompileLimits | None = None,
    seed: int = 0,
) -> Artifact:
    """Compile a model with the best of its history, check it, time it, and write the artifact.

    Args:
        model: From `import_model`.
        target: A target, or a name that `parse_target` reads.
        output: The file to write; ``.tunefarm`` is added where it has no such ending. One that is there is replaced.
        history: The records; those of the `apply_history_best` block around by default, none outside of one.
        device: Where kernels are run for the checks; None is this machine.
        name: The artifact's name; the file's by default.
        precision: How large weights are stored, one of `Precision`. The tasks have to have been extracted with the same.
        baseline: Whether to time ONNX Runtime too (only where the device is this machine, or a GPU's: there torch.compile as well).
        on_progress: Told about each of `PHASES`.
        cancellation: Ends it from another thread.
        limits: Of the child processes.
        seed: Of the inputs that it is checked with.

    Raises:
        InvalidModelError: If the model cannot be compiled or run (codes compile-failed, compile-crashed, compile-timeout,
            compile-memory, reference-failed, reference-crashed, reference-timeout, reference-memory, run-failed), or if what
            TVM makes of it, untuned, gives wrong results (code wrong-output). Nothing is written then.
        InvalidInputError: If there is no such precision, or not for the target (unknown-precision, unsupported-precision); if
            this machine lacks CUDA's compiler for the target (no-cuda-compiler, cuda-compiler-unfit).
        DeviceLostError: If the device went away.
        CancelledError: If `cancellation` was used.
    """
    target = parse_target(target)
    check_can_build(target)
    path = Path(output)
    if path.suffix != SUFFIX:
        path = path.with_name(path.name + SUFFIX)
    if not path.parent.is_dir():
        raise InvalidInputError(f"the folder of {path} does not exist", code="no-such-folder")
    history = history or current_history() or History()
    cancellation = cancellation or Cancellation()
    with closing(ScratchDir()) as scratch:
        job = CompileJob(
            model=model,
            target=target,
            history=history,
            device=device,
            name=name or path.stem,
            precision=parse_precision(precision, target),
            baseline=baseline,
            limits=limits or CompileLimits(),
            seed=seed,
            folder=scratch.path,
            progress=Progress(on_progress or (lambda _phase, _done: None), cancellation),
            cancellation=cancellation,
        )
        try:
            return job.run(path)
        except ChildClosed as error:
            raise CancelledError("the compile was cancelled") from error
