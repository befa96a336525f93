"""History: the best records, looked up by everything that they hold for; a miss has a reason.

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
from tunefarm_tuning.records.record import TuningRecord, load_records
from tunefarm_tuning.records.selection import pick_best

_current: ContextVar[History | None] = ContextVar("tunefarm_history", default=None)


class History:
    """The best record of every workload, target, device model, toolchain and space.

    Args:
        records: In any order; failed trials may be among them.
    """

    def __init__(self, records: Iterable[TuningRecord] = ()) -> None:
        held = list(records)
        self._best: dict[str, list[TuningRecord]] = {}
        # Newest first: what was measured last is most likely of a space that still is one.
        for record in sorted(pick_best(held), key=lambda one: -one.measured_at):
            self._best.setdefault(record.workload_key, []).append(record)
        self._failed = {record.workload_key for record in held} - self._best.keys()
        self._coverage: Coverage | None = None

    @property
    def records(self) -> tuple[TuningRecord, ...]:
        """The best records, one per workload, target, device model, toolchain and space."""
        return tuple(record for group in self._best.values() for record in group)

    def find(
        self, workload_key: str, *, target_key: str, device_model: str, toolchain: str
    ) -> tuple[TuningRecord | None, MissReason | None, str]:
        """Return the record that holds here; else None, the reason, and what there is instead.

        The reason names what comes nearest: a record of another toolchain is nearer than one of another
        device model, and that nearer than one of another target. Of records of several spaces it is the newest;
        `others` has the rest.
        """
        candidates = self._best.get(workload_key, [])
        if not candidates:
            tried = workload_key in self._failed
            return None, MissReason.NO_RECORD, "every trial of it failed" if tried else ""
        same_target = [r for r in candidates if r.target_key == target_key]
        if not same_target:
            return (
                None,
                MissReason.OTHER_TARGET,
                _seen("target", (r.target_key for r in candidates), target_key),
            )
        same_device = [r for r in same_target if r.device_model == device_model]
        if not same_device:
            models = (r.device_model for r in same_target)
            return None, MissReason.OTHER_DEVICE_MODEL, _seen("device model", models, device_model)
        for record in same_device:
            if record.toolchain == toolchain:
                return record, None, ""
        return (
            None,
            MissReason.OTHER_TOOLCHAIN,
            _seen("toolchain", (r.toolchain for r in same_device), toolchain),
        )

    def others(self, record: TuningRecord) -> list[TuningRecord]:
        """Return the best records of other spaces that hold where this one holds, newest first."""
        place = (record.target_key, record.device_model, record.toolchain)
        return [
            one
            for one in self._best.get(record.workload_key, [])
            if (one.target_key, one.device_model, one.toolchain) == place
            and one.space_key != record.space_key
        ]

    @property
    def coverage(self) -> Coverage:
        """What the last `compile` inside the block made of this history.

        Raises:
            ConflictError: If nothing was compiled with it yet.
        """
        if self._coverage is None:
            raise ConflictError("no coverage yet: compile a model inside the block first", code="no-coverage")
        return self._coverage

    @coverage.setter
    def coverage(self, coverage: Coverage) -> None:
        self._coverage = coverage


def _seen(what: str, values: Iterable[str], wanted: str) -> str:
    return f"records are of {what} {', '.join(repr(v) for v in sorted(set(values)))}; this is {wanted!r}"


@contextmanager
def apply_history_best(records: Iterable[TuningRecord] | Path | str) -> Iterator[History]:
    """Let `compile` inside the block use the best of these records.

    Blocks nest; the innermost alone counts. The setting belongs to the thread or asyncio task that entered it.

    Args:
        records: Records, or the path of a JSON-lines file of them.

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
    """Return the history of the innermost `apply_history_best` block, None outside of one."""
    return _current.get()
