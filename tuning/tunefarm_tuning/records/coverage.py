"""Coverage: which tasks of a compiled model run a tuned kernel, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunefarm_tuning.core.json_fields import JsonFields, fields_to_json


class MissReason(StrEnum):
    """Why a task runs its untuned kernel. The first four are known before anything is built.

    To add a reason: add it here, and its sentence to `tunefarm_text.coverage_words.REASONS`. Values are stored: never rename one.
    """

    NO_RECORD = "no-record"  # this workload was never measured, or every trial failed
    OTHER_TARGET = "other-target"
    OTHER_DEVICE_MODEL = "other-device-model"
    OTHER_TOOLCHAIN = "other-toolchain"
    SPACE_CHANGED = "space-changed"  # the record's config is a point of another config space
    DOES_NOT_APPLY = "does-not-apply"  # the config does not schedule, or its kernel does not build
    CRASHED = "crashed"  # the kernel crashed its process or exceeded its time limit
    UNCHECKED = "unchecked"  # the untuned kernel could not be run, so there was nothing to compare with
    WRONG_ANSWER = "wrong-answer"
    SLOWER_THAN_UNTUNED = "slower-than-untuned"


FALLBACK_REASONS = frozenset(
    {MissReason.CRASHED, MissReason.UNCHECKED, MissReason.WRONG_ANSWER, MissReason.SLOWER_THAN_UNTUNED}
)
"""Misses whose record's kernel ran, but was left out after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredTask(JsonFields):
    """A task that runs the kernel of its best record.

    Attributes:
        workload_key: `Workload.key`.
        name: The kernel's name in the graph.
        weight: Calls per inference.
        record_cost_sec: Seconds per call when it was tuned.
        tuned_sec: Median seconds per call in the check of this compile; None if it was not timed.
        untuned_sec: The same for the untuned kernel.
    """

    workload_key: str
    name: str
    weight: int
    record_cost_sec: float
    tuned_sec: float | None = None
    untuned_sec: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedTask(JsonFields):
    """A task that runs its untuned kernel.

    Attributes:
        workload_key: `Workload.key`.
        name: The kernel's name in the graph.
        weight: Calls per inference.
        reason: Why it does not run a tuned kernel.
        message: Details of the reason; may be empty.
    """

    workload_key: str
    name: str
    weight: int
    reason: MissReason
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(JsonFields):
    """Which tasks of a model run a tuned kernel.

    Attributes:
        hits: The tasks that run the kernel of their best record, in order of first use.
        misses: The tasks that run their untuned kernel, in order of first use.
    """

    hits: tuple[CoveredTask, ...]
    misses: tuple[MissedTask, ...]

    @property
    def fallbacks(self) -> tuple[MissedTask, ...]:
        """The misses whose tuned kernel was run and left out."""
        return tuple(miss for miss in self.misses if miss.reason in FALLBACK_REASONS)

    def __str__(self) -> str:
        total = len(self.hits) + len(self.misses)
        lines = [f"{len(self.hits)} of {total} tasks covered by history"]
        lines += [
            f"  missed {miss.name} ({miss.workload_key[:12]}): {miss.reason.value}"
            + (f", {miss.message}" if miss.message else "")
            for miss in self.misses
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the fields and their counts."""
        counts = {"tasks": len(self.hits) + len(self.misses), "covered": len(self.hits)}
        return {**counts, **fields_to_json(self)}
