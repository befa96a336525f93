"""The network without any record: what a tuned one is timed beside, and what it falls back to.

It needs no inputs or expected outputs, so it is built while others make these; or only when somebody needs it, if an earlier compile, by
the same records, timed it on a quiet device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.compiler.session import CompileSession, LoadedInfo
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.process.model_child import compiling

_KIND = "timed"


@dataclass(slots=True, kw_only=True)
class UntunedModel:
    """The library of the network without any record. Concurrency: one caller.

    Attributes:
        library: Its path; the library is there after `build`.
        unscheduled: Whether it has unscheduled loops, since the compiler died of a default schedule. False until it is built.
        compiler: What has to build it; None once it is built.
    """

    library: Path
    unscheduled: bool = False
    compiler: CompileSession | None = None

    def build(self) -> Path:
        """Build the library unless it is there, with unscheduled loops if it must be; return its path.

        Raises:
            InvalidModelError: If it cannot be built.
        """
        compiler = self.compiler
        if compiler is not None:
            with compiling("compiling the model"):
                try:
                    compiler.build_model(self.library, {})
                except ChildClosed:
                    raise
                except ChildFailed:  # the compiler died of a default schedule
                    compiler.build_model(self.library, {}, default_schedules=False)
                    self.unscheduled = True
            self.compiler = None
        return self.library


def untuned_model(compiler: CompileSession, folder: Path) -> UntunedModel:
    """Return the untuned network, which is still to be built in this folder."""
    return UntunedModel(library=folder / "model-untuned.so", compiler=compiler)


def build_unless_timed(
    request: CompileRequest, compiler: CompileSession, info: Callable[[], LoadedInfo]
) -> UntunedModel:
    """Return the untuned network, built unless its latency will most likely be that of an earlier compile.

    Args:
        request: The compile.
        compiler: Builds it.
        info: Waits for the loaded network.
    """
    untuned = untuned_model(compiler, request.folder)
    if not _may_be_built_later(request) or request.findings.peek(_KIND, _facts(request, info())) is None:
        untuned.build()
    return untuned


def note_timed(request: CompileRequest, info: LoadedInfo) -> None:
    """Remember that the networks, in one set of shapes, were timed on a quiet device."""
    if _may_be_built_later(request):
        request.findings.note(_KIND, _facts(request, info), {"quiet": True})


def _may_be_built_later(request: CompileRequest) -> bool:
    return not request.on_gpu and not request.samples and request.may_keep_compiler


def _facts(request: CompileRequest, info: LoadedInfo) -> dict[str, Any]:
    """Return what the networks and their latencies depend on, as far as it is known before anything is built."""
    records = {
        task.name: request.find_record(task)[0]
        for task in (*info.tasks, *(alternative.tuned for alternative in info.alternatives))
    }
    return {
        "device": "" if request.device is None else request.device.info.name,
        "file": request.model.sha256,
        "bindings": [each.binding.to_json() for each in request.model.each],
        "precision": request.precision.value,
        "records": {
            name: [record.space_key, record.config.to_json()]
            for name, record in records.items()
            if record is not None
        },
        "baselines": [request.times_onnx_runtime, *request.baselines],
        "seed": request.seed,
    }
