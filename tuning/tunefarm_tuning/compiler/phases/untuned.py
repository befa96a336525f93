"""Build the network without any record; it is needed in any case, and needs no inputs or expected outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunefarm_tuning.compiler.session import CompileSession
from tunefarm_tuning.process import ChildClosed, ChildFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class UntunedModel:
    """The library of the network without any record.

    Attributes:
        unscheduled: Whether it has unscheduled loops, since the compiler died of a default schedule.
    """

    library: Path
    unscheduled: bool


def build_untuned(compiler: CompileSession, folder: Path) -> UntunedModel:
    """Build the network untuned, with unscheduled loops if it must be."""
    library = folder / "model-untuned.so"
    try:
        compiler.build_model(library, {})
    except ChildClosed:
        raise
    except ChildFailed:  # the compiler died of a default schedule
        compiler.build_model(library, {}, default_schedules=False)
        return UntunedModel(library=library, unscheduled=True)
    return UntunedModel(library=library, unscheduled=False)
