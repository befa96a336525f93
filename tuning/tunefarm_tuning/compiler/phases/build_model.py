"""The phase ``build-model``: build the tuned network, and select alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tunefarm_tuning.compiler.alternative_selection import AlternativeSelector
from tunefarm_tuning.compiler.alternatives import SelectedAlternatives
from tunefarm_tuning.compiler.kernel_validation import CheckedKernel
from tunefarm_tuning.compiler.phases.check_kernels import CheckedKernels
from tunefarm_tuning.compiler.phases.load import LoadedModel
from tunefarm_tuning.compiler.phases.untuned import UntunedModel
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.process.model_child import compiling
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.record import TuningRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Why no tuned kernel is used: the tuned network failed as a whole."""

    reason: MissReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModels:
    """The result of the phase ``build-model``.

    Attributes:
        untuned: The network without any record.
        tuned: The library of the tuned network; that of `untuned` if no kernel is tuned.
        alternatives: The alternatives that the tuned network uses.
        records: The records of the tuned network, those of its alternatives among them, by the kernel's name.
        direct: The kernels without alternatives, as they were checked.
        fallback: Why there is no tuned network though kernels passed; None if there is one.
    """

    untuned: UntunedModel
    tuned: Path
    alternatives: SelectedAlternatives
    records: Mapping[str, TuningRecord] = field(default_factory=dict)
    direct: tuple[CheckedKernel, ...] = ()
    fallback: Fallback | None = None

    @property
    def is_tuned(self) -> bool:
        """Whether any kernel of `tuned` is."""
        return self.tuned != self.untuned.library

    def warnings_of(self, fallback: Fallback) -> list[str]:
        """Return what the report says of a fallback: nothing if no kernel was tuned, and alternatives were no faster."""
        harmless = not self.records and fallback.reason is MissReason.SLOWER_THAN_UNTUNED
        return [] if harmless else [f"all kernels fell back to untuned: {fallback.message}"]


class _TunedFails(Exception):  # noqa: N818  (an outcome, caught in `build_models`)
    """The network with the tuned kernels does not build."""


def build_models(request: CompileRequest, loaded: LoadedModel, checked: CheckedKernels) -> BuiltModels:
    """Build the network with the kernels that passed and the alternatives that make it faster."""
    untuned = loaded.untuned.library
    with request.progress.phase("build-model"), compiling("compiling the model"):
        request.progress.step(0.5)
        records = {
            name: kernel.record
            for kernel in checked.direct
            if kernel.hit is not None and kernel.record is not None
            for name in kernel.task.names
        }
        tuned = request.folder / "model-tuned.so" if records else untuned

        def build_direct() -> Path:
            if not records:
                return loaded.untuned.build()
            try:
                loaded.compiler.build_model(tuned, records)
            except ChildClosed:
                raise
            except (ChildFailed, InvalidInputError) as error:
                raise _TunedFails(error.message) from error
            return tuned

        try:
            alternatives = AlternativeSelector(
                compiler=loaded.compiler,
                runner=loaded.runner,
                folder=request.folder,
                limits=request.limits,
                threads=loaded.threads,
                on_step=lambda: request.progress.step(1.0),
                candidates=list(checked.candidates),
                build_direct=build_direct,
                records=records,
                sets=loaded.sets,
                output_names=request.output_names,
                entries=loaded.info.entries,
                findings=request.findings,
                spare_sec=request.spare_sec,
            ).select()
        except _TunedFails as error:
            return BuiltModels(
                untuned=loaded.untuned,
                tuned=untuned,
                alternatives=SelectedAlternatives(library=untuned, candidates=checked.candidates),
                fallback=Fallback(
                    reason=MissReason.DOES_NOT_APPLY,
                    message=f"the tuned network does not build: {error}",
                ),
            )
    return BuiltModels(
        untuned=loaded.untuned,
        tuned=alternatives.library,
        alternatives=alternatives,
        records={**records, **alternatives.records},
        direct=checked.direct,
    )
