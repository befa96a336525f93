"""A network that is tuned in some of its sets of shapes: in the others the tuned one was wrong or slow."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tunefarm_tuning.compiler.model_comparison import ModelComparison, compare_model
from tunefarm_tuning.compiler.phases.build_model import BuiltModels
from tunefarm_tuning.compiler.phases.load import LoadedModel, OpenCompiler
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.measure.device_run import RunFailed
from tunefarm_tuning.process import ChildClosed, ChildFailed


def build_partly_untuned(
    request: CompileRequest,
    loaded: LoadedModel,
    built: BuiltModels,
    untuned_entries: Collection[str],
    open_compiler: OpenCompiler,
) -> tuple[Path, ModelComparison] | None:
    """Build the tuned network with some of its functions untuned, and compare its outputs.

    Returns:
        The library and the comparison; None if it does not build or run, or is wrong, or no function would be tuned.
    """
    if built.untuned.unscheduled or len(untuned_entries) == len(loaded.info.entries):
        return None
    path = request.folder / f"model-partly-{len(untuned_entries)}.so"
    path.unlink(missing_ok=True)
    try:
        with open_compiler(request.precision) as compiler:
            compiler.build_model(
                path, built.records, built.alternatives.algorithms, untuned_entries=untuned_entries
            )
        comparison = compare_model(loaded.runner, path, request.output_names, loaded.sets, request.limits)
    except ChildClosed:
        raise
    except (ChildFailed, InvalidInputError, InvalidModelError, RunFailed):
        return None
    return (path, comparison) if comparison.ok else None
