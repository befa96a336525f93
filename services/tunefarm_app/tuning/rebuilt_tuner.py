"""A task's tuner, rebuilt from the database before every round: any process may measure the next one."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import lru_cache

from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.rows import current_space, engine_record, engine_space, engine_task
from tunefarm_db.repositories.jobs.trials import Tried
from tunefarm_db.repositories.records.transfer import Outline
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, JobTask
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Builder
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.transfer import TaskHistory, choose_histories
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tuner import TrialResult, Tuner, make_tuner, result_of_record, task_seed

MAX_RECORDS = 8192
"""Maximum number of records in a process's memory: some 20 MB."""

MAX_SPACES = 128

_LOSSES_BEFORE_SETTING_ASIDE = 3


class RebuiltTuner:
    """A task's tuner. Trials and records are read at creation, the config space and histories when it is opened.

    Attributes:
        task: The task.
        stored_space: Its stored config space; None if there is none or an older release stored it.
        space: Its config space; None until the tuner was opened.
    """

    def __init__(self, services: Services, job: Job, row: JobTask, device: DeviceLease) -> None:
        self._services = services
        self._job = job
        self._row = row
        self._device_model = device.device.device_model
        with services.uow.read() as repos:
            workload = repos.workloads.get(row.workload_key, row.toolchain)
            self._trials = repos.trials.tried(job.id, row.position)
            stored = repos.spaces.get(row.workload_key, target_key=job.target_key, toolchain=row.toolchain)
            record_ids = repos.records.history_ids(
                row.workload_key,
                target_key=job.target_key,
                device_model=self._device_model,
                toolchain=row.toolchain,
                space_key=row.space_key,
                except_job=job.id,
                limit=services.settings.history_limit,
            )
            self._earlier = _CACHE.records(repos, sorted(record_ids))
        self.task = engine_task(workload, Target.from_json(job.target), row.weight)
        self.stored_space = current_space(stored)
        self.space: ConfigSpace | None = None
        self._tuner: Tuner | None = None

    def open(self, builder: Builder) -> Tuner:
        """Return the tuner after telling it all stored trials and records.

        Raises:
            InvalidInputError: If the workload cannot be scheduled.
        """
        self.space = space = self.stored_space or builder.config_space(self.task)
        seed = task_seed(self._job.seed, self.task)
        self._tuner = tuner = make_tuner(self._job.tuner, self.task, space, seed=seed)
        tuner.tell([_result_of(trial) for trial in self._trials])
        tuner.set_aside(_lost_too_often(self._trials))
        # Records that other jobs measured here count as tried.
        tuner.tell([result_of_record(record) for record in self._earlier if record.space_key == space.key])
        if tuner.learns_from_others:
            tuner.load_history(self._transfer_histories(space))
        return tuner

    def close(self) -> None:
        """Close the tuner, if it was opened. From any thread."""
        if self._tuner is not None:
            self._tuner.close()

    def _transfer_histories(self, space: ConfigSpace) -> tuple[TaskHistory, ...]:
        """Return records of all jobs: of the same workload on other platforms, and of similar workloads on this one."""
        with self._services.uow.read() as repos:
            outlines = repos.transfer.outlines(
                self._row.workload_key,
                target_key=self.task.target.key,
                device_model=self._device_model,
                toolchain=self._row.toolchain,
                family=space.family,
                extents=space.extents,
            )
            histories = [
                TaskHistory(space=other, records=_CACHE.records(repos, outline.record_ids))
                for outline in outlines
                if (other := _CACHE.space(repos, outline)) is not None
            ]
        return choose_histories(space, self._row.workload_key, histories)


class RecordCache:
    """A cache of records and spaces: a job's rounds learn from the same ones again and again.

    The least recently used make room. A cached record is never out of date: records do not change. Ids are random
    enough to be of one farm only. One thread at a time.
    """

    def __init__(self, *, max_records: int = MAX_RECORDS, max_spaces: int = MAX_SPACES) -> None:
        self._max_records = max_records
        self._max_spaces = max_spaces
        self._records: OrderedDict[str, TuningRecord] = OrderedDict()
        self._spaces: OrderedDict[tuple[str, str, str, str], ConfigSpace] = OrderedDict()

    def records(self, repos: Repositories, record_ids: Sequence[str]) -> tuple[TuningRecord, ...]:
        """Return records in the order of their ids; deleted ones are left out."""
        missing = [record_id for record_id in record_ids if record_id not in self._records]
        for record_id, row in repos.records.by_ids(missing).items():
            self._records[record_id] = engine_record(row)
        records = []
        for record_id in record_ids:
            record = self._records.get(record_id)
            if record is not None:
                self._records.move_to_end(record_id)
                records.append(record)
        while len(self._records) > self._max_records:
            self._records.popitem(last=False)
        return tuple(records)

    def space(self, repos: Repositories, outline: Outline) -> ConfigSpace | None:
        """Return the space of an outline's records; None if another release stored it or it was just replaced."""
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


_CACHE = RecordCache()


def _result_of(trial: Tried) -> TrialResult:
    return TrialResult(
        asked=_config(trial.asked_key),
        config=_config(trial.config_key),
        outcome=Outcome(trial.outcome),
        cost_sec=trial.cost_sec,
    )


def _lost_too_often(trials: Sequence[Tried]) -> list[Config]:
    """Return the configs whose measurements lost a device too often.

    They have no failure on record, but trying them without end would spoil every round of the job. Configs that merely
    waited when the device was lost have no time of measuring, and are tried again.
    """
    lost = [
        trial for trial in trials if trial.outcome == Outcome.INFRASTRUCTURE_ERROR and trial.run_sec > 0.0
    ]
    losses = Counter(trial.config_key for trial in lost)
    keys = {
        key
        for trial in lost
        if losses[trial.config_key] >= _LOSSES_BEFORE_SETTING_ASIDE
        for key in (trial.asked_key, trial.config_key)
    }
    return [_config(key) for key in sorted(keys)]


@lru_cache(maxsize=8192)  # enough for a few tasks, whose trials are told again before every round
def _config(key: str) -> Config:
    return Config.from_json(json.loads(key))
