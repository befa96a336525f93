"""Records and spaces that a process has read lately: rounds of a job learn from the same ones again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tunefarm_app.storage.rows import engine_record, engine_space
from tunefarm_db.repositories.records.transfer import Outline
from tunefarm_db.unit_of_work import Repositories
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config_space import ConfigSpace

MAX_RECORDS = 8192
"""Some 20 MB of them."""

MAX_SPACES = 128


class KeptRecords:
    """What was used least lately makes room. What is kept is never out of date: records do not change.

    Ids are of one farm: they are random enough to be of one only. One thread at a time.
    """

    def __init__(self, *, max_records: int = MAX_RECORDS, max_spaces: int = MAX_SPACES) -> None:
        self._max_records = max_records
        self._max_spaces = max_spaces
        self._records: OrderedDict[str, TuningRecord] = OrderedDict()
        self._spaces: OrderedDict[tuple[str, str, str, str], ConfigSpace] = OrderedDict()

    def records(self, repos: Repositories, record_ids: Sequence[str]) -> tuple[TuningRecord, ...]:
        """Return records in the order of their ids; those that are gone are left out."""
        missing = [record_id for record_id in record_ids if record_id not in self._records]
        for record_id, row in repos.records.by_ids(missing).items():
            self._records[record_id] = engine_record(row)
        found = []
        for record_id in record_ids:
            record = self._records.get(record_id)
            if record is not None:
                self._records.move_to_end(record_id)
                found.append(record)
        while len(self._records) > self._max_records:
            self._records.popitem(last=False)
        return tuple(found)

    def space(self, repos: Repositories, outline: Outline) -> ConfigSpace | None:
        """Return the space of an outline's records; None where it is of another release, or was replaced just now."""
        key = (outline.workload_key, outline.target_key, outline.toolchain, outline.space_key)
        space = self._spaces.get(key)
        if space is None:
            space = engine_space(
                repos.spaces.get(
                    outline.workload_key, target_key=outline.target_key, toolchain=outline.toolchain
                )
            )
            if space is None or space.key != outline.space_key:
                return None
            self._spaces[key] = space
        self._spaces.move_to_end(key)
        while len(self._spaces) > self._max_spaces:
            self._spaces.popitem(last=False)
        return space


KEPT = KeptRecords()
"""This process's: a job's next round learns from the same records and a few more."""
