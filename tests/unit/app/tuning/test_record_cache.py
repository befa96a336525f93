"""Records that a process has read are not read again, and what is kept is bounded."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event

from tunefarm_app.engines.replay import Scenario
from tunefarm_app.storage.rows import engine_record
from tunefarm_app.tuning.rebuilt_tuner import RecordCache
from tunefarm_db.repositories.records.transfer import Outline


def tuned(farm: Any) -> tuple[list[Any], Outline]:
    """Return the records of a job of one task, and an outline of them."""
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=16)
    farm.run()
    with farm.services.uow.read() as repos:
        rows = [row for row in repos.records.for_job(job.id) if not row.confirmed]
    outline = Outline(
        workload_key=rows[0].workload_key,
        target_key=rows[0].target_key,
        device_model=rows[0].device_model,
        toolchain=rows[0].toolchain,
        space_key=rows[0].space_key,
        record_ids=tuple(row.id for row in rows),
    )
    return rows, outline


def test_what_was_read_is_not_read_again(farm) -> None:
    rows, outline = tuned(farm)
    kept = RecordCache()
    statements: list[str] = []
    event.listen(
        farm.services.uow.engine, "before_cursor_execute", lambda _c, _k, sql, *_: statements.append(sql)
    )

    def look(*ids: str) -> int:
        statements.clear()
        with farm.services.uow.read() as repos:
            assert kept.records(repos, ids) == tuple(by_id[record_id] for record_id in ids)
            space = kept.space(repos, outline)
            assert space is not None
            assert space.key == outline.space_key
        return sum("FROM records" in sql or "FROM config_spaces" in sql for sql in statements)

    by_id = {row.id: engine_record(row) for row in rows}
    ids = outline.record_ids
    assert look(*ids[:10]) == 2  # the records, and the space
    assert look(*ids[5:]) == 1
    assert look(*reversed(ids)) == 0


def test_what_is_kept_is_bounded(farm) -> None:
    rows, outline = tuned(farm)
    kept = RecordCache(max_records=4, max_spaces=1)
    with farm.services.uow.read() as repos:
        assert len(kept.records(repos, outline.record_ids)) == len(rows)
        assert len(kept.records(repos, outline.record_ids[:2])) == 2
        assert kept.records(repos, ["rec_none"]) == ()
        assert len(kept._records) <= 4
        assert kept.space(repos, outline) is not None


def test_a_space_of_another_release_is_none(farm) -> None:
    _, outline = tuned(farm)
    changed = Outline(
        workload_key=outline.workload_key,
        target_key=outline.target_key,
        device_model=outline.device_model,
        toolchain=outline.toolchain,
        space_key="another",
        record_ids=outline.record_ids,
    )
    with farm.services.uow.read() as repos:
        assert RecordCache().space(repos, changed) is None
