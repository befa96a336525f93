"""`CompileJob`: runs the phases of a compile in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from shutil import copyfile

from tunefarm_tuning.compiler.phases.build_model import build_models
from tunefarm_tuning.compiler.phases.check_kernels import CheckedKernels, check_kernels
from tunefarm_tuning.compiler.phases.check_model import check_model
from tunefarm_tuning.compiler.phases.load import load, opened
from tunefarm_tuning.compiler.phases.measure import time_model
from tunefarm_tuning.compiler.phases.other_shapes import add_other_shapes, keeps_compiler
from tunefarm_tuning.compiler.phases.pack import Artifact, PhaseResults, write_artifact
from tunefarm_tuning.compiler.phases.prove_batches import prove_batches
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.compiler.session import CompileSession
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.kept_files import folder_of_file
from tunefarm_tuning.measure.device_functions import early_artifact_child
from tunefarm_tuning.reference.onnx_runtime import Reference
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision

_FILE_BYTES = 64 << 10
"""Of a file of arrays, and for each of them, beside the arrays themselves."""
_MOST_ITEM_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """A compile; tests replace the functions that start ONNX Runtime and the compiler."""

    request: CompileRequest
    make_reference: Callable[..., Reference] = Reference
    make_compiler: Callable[..., CompileSession] = CompileSession

    def run(self, output: Path) -> Artifact:
        """Run all phases and write the artifact to `output`. See `compile` for the errors."""
        request = self.request
        with ExitStack() as stack:
            loaded = load(request, stack, self.open_compiler, self.make_reference)
            kernels = check_kernels(request, loaded)
            # Building a network uses one core, and longer than another one takes to load what the artifact's check needs.
            early = (
                stack.enter_context(closing(early_artifact_child()))
                if _builds_again(request, kernels)
                else None
            )
            built = build_models(request, loaded, kernels)
            if loaded.untuned.compiler is None and not keeps_compiler(request):
                loaded.compiler.close()  # the later phases need its memory
            checked = check_model(request, loaded, built, self.open_compiler)
            timed = time_model(request, loaded, built, checked, self.open_compiler)
            proved = prove_batches(request, loaded, timed.library)
            if request.keep_inputs is not None:
                _keep_inputs(loaded.sets[0].inputs, request.model, request.keep_inputs)
            others = add_other_shapes(request, loaded, built, checked, timed, self.open_compiler)
            loaded.compiler.close()
            loaded.references.close()
            if request.device is None or not request.on_gpu:
                loaded.runner.close()
            with request.progress.phase("pack"):
                results = PhaseResults(
                    loaded=loaded,
                    checked_kernels=kernels,
                    built=built,
                    checked=checked,
                    timed=timed,
                    proved=proved,
                    others=others,
                )
                return write_artifact(request, results, output, early)

    @contextmanager
    def open_compiler(self, precision: Precision, *, model: Model | None = None) -> Iterator[CompileSession]:
        """Start a compiler, which stores weights in a precision, for the length of the block.

        It compiles another model than the request's if one is given.
        """
        request = self.request
        compiler = self.make_compiler(
            model or request.model,
            request.target,
            request.folder,
            request.limits,
            precision,
            # What a model's compile, which the model may take over, leaves is linked for that model alone.
            folder_of_file(request.history.findings.objects, request.model.sha256 if model is None else ""),
            request.libraries,
        )
        with opened(compiler, request.cancellation):
            yield compiler


def _keep_inputs(inputs: Path, model: Model, kept: Path) -> None:
    """Copy the inputs of a network. A child wrote the file: its holes would take room in the copy.

    Raises:
        InvalidModelError: ``reference-failed``, if it is larger than inputs are.
    """
    most_bytes = _FILE_BYTES + sum(_FILE_BYTES + _MOST_ITEM_BYTES * prod(spec.shape) for spec in model.inputs)
    if inputs.stat().st_size > most_bytes:
        raise InvalidModelError(
            "the file of the network's inputs is larger than these are", code="reference-failed"
        )
    copyfile(inputs, kept)


def _builds_again(request: CompileRequest, kernels: CheckedKernels) -> bool:
    """Return whether a network is built with records or other algorithms, whose artifact this machine checks on its CPU."""
    if not request.here or request.on_gpu:
        return False
    return bool(kernels.candidates) or any(kernel.hit is not None for kernel in kernels.direct)
