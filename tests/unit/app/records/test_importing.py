"""Records from outside: a config that its kernel cannot have is refused, or, if nobody knows the kernel's space yet, harmless."""

from __future__ import annotations

from dataclasses import replace

import pytest
from app_farm import Farm
from tuning_records import RECORD

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.records.importing import import_records
from tunefarm_app.storage.rows import engine_record
from tunefarm_db.states.job import JobState
from tunefarm_tuning.core.errors import InvalidRecordError
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config


def measured(farm: Farm) -> list[TuningRecord]:
    with farm.services.uow.read() as repos:
        return [engine_record(row) for row in repos.records.query(limit=100).items]


def test_a_config_of_no_space_is_refused_with_its_line_and_nothing_is_added(farm: Farm) -> None:
    farm.add_device()
    farm.submit(farm.ready_model(Scenario(tasks=1)), trials=8)
    farm.run_until_quiet()
    before = measured(farm)
    good = replace(before[0], device_model="elsewhere")
    bad = replace(good, config=Config(7, good.config.decisions))
    with pytest.raises(
        InvalidRecordError, match="line 12: the config is not in its kernel's config space"
    ) as refused:
        import_records(farm.services, [(11, good), (12, bad)])
    assert refused.value.fields["line"] == 12
    assert len(measured(farm)) == len(before)
    answer = import_records(farm.services, [(1, good), (2, replace(good, space_key="of an old release"))])
    assert (answer.imported, answer.left_out, answer.unchecked) == (1, {"space-changed": 1}, 0)


@pytest.mark.parametrize("tuner", ["xgb", "ga"])
def test_a_job_survives_configs_that_nobody_could_check(farm: Farm, tuner: str) -> None:
    """They were imported before the first job, which made the space: they neither end the search nor win."""
    farm.add_device()
    first = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=8)
    farm.run_until_quiet()
    (known, *_) = measured(farm)
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM config_spaces")  # as if no job had run
    wrong = [
        replace(known, config=Config(sketch, decisions), samples_sec=(1e-9,))
        for sketch, decisions in ((99, ()), (0, ()), (-1, known.config.decisions), (0, ((3, 3),) * 40))
    ]
    answer = import_records(farm.services, list(enumerate(wrong)))
    assert (answer.imported, answer.left_out, answer.unchecked) == (4, {}, 4)
    job = farm.submit(farm.model(first.model_id), trials=12, tuner=tuner)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert farm.job(job.id).trials == 12


def test_an_import_cannot_claim_a_session_of_the_farms(farm: Farm) -> None:
    claimed = replace(RECORD, certificate_sha256="0a" * 32, ticket_jti="t1")
    assert import_records(farm.services, [(1, claimed)], keep_unknown=True).imported == 1
    (record,) = measured(farm)
    assert record == RECORD
    assert record.certificate_sha256 is record.ticket_jti is None


def test_an_unknown_kernel_is_kept_only_if_asked(farm: Farm) -> None:
    assert import_records(farm.services, [(1, RECORD)]).left_out == {"unknown-workload": 1}
    kept = import_records(farm.services, [(1, RECORD)], keep_unknown=True)
    assert (kept.imported, kept.unchecked) == (1, 1)


def test_what_comes_back_from_metaschedule_with_another_config_is_known(farm: Farm) -> None:
    """TVM's database keeps a kernel, which several configs may give; a trial that was cut short has a single sample."""
    import_records(farm.services, [(1, RECORD)], keep_unknown=True)
    back = replace(RECORD, config=Config(0, (2,)), tuner="metaschedule", build_sec=0.0, measured_at=2.0)
    answer = import_records(farm.services, [(1, back)], keep_unknown=True)
    assert (answer.imported, answer.left_out) == (0, {"on-record": 1})
    others = [
        replace(RECORD, config=Config(0, (2,))),  # our own: as fast, and another measurement
        replace(back, samples_sec=(2e-3,)),
        replace(back, samples_sec=(2e-3,), config=Config(0, (3,))),
    ]
    answer = import_records(farm.services, list(enumerate(others)), keep_unknown=True)
    assert (answer.imported, answer.left_out) == (3, {})
