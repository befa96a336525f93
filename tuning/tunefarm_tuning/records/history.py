"""History: looks up the best record for a workload, target, device model and toolchain; a miss has a reason.

::

    with apply_history_best("records.jsonl") as history:
        artifact = compile(model, target="host", output="model.tunefarm")
    print(history.coverage)

Source: ``autotvm.apply_history_best`` (TVM v0.19), which matched by target and workload, and was silent about misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.records.coverage import Coverage, MissReason
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.record import TuningRecord, load_records
from tunefarm_tuning.records.selection import pick_best

_current: ContextVar[History | None] = ContextVar("tunefarm_history", default=None)


class History:
    """The best record of every workload, target, device model, toolchain and space.

    Args:
        records: Records of any workloads, in any order. Failed trials may be among them.
        findings: What earlier compiles found out; by default nothing.
    """

    def __init__(self, records: Iterable[TuningRecord] = (), findings: Findings | None = None) -> None:
        self.findings = findings or Findings()
        all_records = list(records)
        self._all: dict[str, list[TuningRecord]] = {}
        for record in all_records:
            self._all.setdefault(record.workload_key, []).append(record)
        self._best: dict[str, list[TuningRecord]] = {}
        # Newest first: the space of the record measured last is the most likely to still exist.
        for record in sorted(pick_best(all_records), key=lambda record: -record.measured_at):
            self._best.setdefault(record.workload_key, []).append(record)
        self._failed = {record.workload_key for record in all_records} - self._best.keys()
        self._coverage: Coverage | None = None

    @property
    def records(self) -> tuple[TuningRecord, ...]:
        """The best records, one per workload, target, device model, toolchain and space."""
        return tuple(record for group in self._best.values() for record in group)

    def find(
        self, workload_key: str, *, target_key: str, device_model: str, toolchain: str
    ) -> tuple[TuningRecord | None, MissReason | None, str]:
        """Look up the best record of a workload.

        If records of several spaces hold, the newest is returned; `others` returns the rest. Otherwise the reason names
        the difference of the closest records: the toolchain before the device model before the target.

        Args:
            workload_key: `Workload.key`.
            target_key: `Target.key`.
            device_model: `DeviceInfo.model`.
            toolchain: The versions, as `toolchain_key` writes them.

        Returns:
            The record, None and an empty message; or None, the reason of the miss, and a message about other records.
        """
        candidates = self._best.get(workload_key, [])
        if not candidates:
            tried = workload_key in self._failed
            return None, MissReason.NO_RECORD, "every trial of it failed" if tried else ""
        same_target = [record for record in candidates if record.target_key == target_key]
        if not same_target:
            return (
                None,
                MissReason.OTHER_TARGET,
                _seen("target", (record.target_key for record in candidates), target_key),
            )
        same_device = [record for record in same_target if record.device_model == device_model]
        if not same_device:
            models = (record.device_model for record in same_target)
            return None, MissReason.OTHER_DEVICE_MODEL, _seen("device model", models, device_model)
        for record in same_device:
            if record.toolchain == toolchain:
                return record, None, ""
        return (
            None,
            MissReason.OTHER_TOOLCHAIN,
            _seen("toolchain", (record.toolchain for record in same_device), toolchain),
        )

    def others(self, record: TuningRecord) -> list[TuningRecord]:
        """Return the best records of other spaces that hold for the same setting as `record`, newest first."""
        setting = (record.target_key, record.device_model, record.toolchain)
        return [
            other
            for other in self._best.get(record.workload_key, [])
            if (other.target_key, other.device_model, other.toolchain) == setting
            and other.space_key != record.space_key
        ]

    @property
    def coverage(self) -> Coverage:
        """The coverage of the last `compile` with this history: which tasks run a tuned kernel.

        Raises:
            ConflictError: If nothing has been compiled with it yet (code no-coverage).
        """
        if self._coverage is None:
            raise ConflictError("no coverage yet: compile a model inside the block first", code="no-coverage")
        return self._coverage

    @coverage.setter
    def coverage(self, coverage: Coverage) -> None:
        self._coverage = coverage


def _seen(kind: str, values: Iterable[str], wanted: str) -> str:
    return (
        f"records are of {kind} {', '.join(repr(value) for value in sorted(set(values)))}; this is {wanted!r}"
    )


@contextmanager
def apply_history_best(records: Iterable[TuningRecord] | Path | str) -> Iterator[History]:
    """Let `compile` inside the block use the best of these records.

    Blocks nest; only the innermost counts. The block holds for the thread or asyncio task that entered it.

    Args:
        records: The records, or the path of a JSON-lines file of them.

    Yields:
        The history; after a `compile`, its `coverage` says which tasks it covered.

    Raises:
        InvalidRecordError: If the file has a line that is not a record.
    """
    history = History(load_records(records) if isinstance(records, str | Path) else records)
    token = _current.set(history)
    try:
        yield history
    finally:
        _current.reset(token)


def current_history() -> History | None:
    """Return the history of the innermost `apply_history_best` block; None outside of a block."""
    return _current.get()
