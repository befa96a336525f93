"""Backup and restore, on and between both databases: a restored farm continues the work."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm, farm_settings, make_farm
from sqlalchemy import MetaData, func, select

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.operations.backup import DATABASE, MANIFEST, Backup, _dump, back_up, check_backup, restore
from tunefarm_app.operations.reconcile import reap
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import Base, TrialRow
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError


def farm_on(url: str, store_dir: Path, **settings: Any) -> Farm:
    places = {"database_url": url, "store_dir": store_dir, **settings}
    return make_farm(farm_settings(store_dir, device_retry_sec=0.01, step_turn_sec=0.0, **places))


@pytest.fixture
def farm(database_url: str, tmp_path: Path) -> Iterator[Farm]:
    farm = farm_on(database_url, tmp_path / "store")
    yield farm
    farm.services.close()


@pytest.fixture(params=["sqlite", "postgres"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'other.db'}"
    make: Callable[[], str] = request.getfixturevalue("new_postgres_url")
    return make()


def url_of(farm: Farm) -> str:
    return farm.services.settings.database_url.get_secret_value()


def tables_of(url: str) -> dict[str, list[Any]]:
    """Return every row of every table, sorted."""
    engine = make_engine(url)
    try:
        with engine.connect() as connection:
            return {
                table.name: sorted(json.dumps(list(row)) for row in connection.execute(select(table)))
                for table in Base.metadata.sorted_tables
            }
    finally:
        engine.dispose()


def halfway(farm: Farm) -> Any:
    """Return a job in the middle of its search, with a worker at its next round; another one is done."""
    farm.add_device()
    model = farm.upload(Scenario(tasks=2, failing=0.2))
    farm.run()
    done = farm.submit(model, trials=8)
    farm.run()
    assert farm.job(done.id).state is JobState.SUCCEEDED
    job = farm.submit(model, trials=40, seed=5)
    while farm.job(job.id).trials < 16:
        assert farm.run(steps=1) == 1
    (step_id,) = farm.inbox.messages
    with farm.services.uow.write() as repos:
        assert repos.steps.claim(step_id, "a worker", 3600.0) is not None
    return job


@pytest.mark.matrix(every=4, each_value=False)
def test_a_restored_farm_goes_on(farm: Farm, other_url: str, tmp_path: Path) -> None:
    job = halfway(farm)
    before = farm.trials(job.id)
    backup = back_up(url_of(farm), farm.services.blobs, tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    assert len(backup.blobs) == 2  # the model and an artifact
    assert check_backup(tmp_path / "backup") == backup

    restore(tmp_path / "backup", database_url=other_url, store=BlobStore(tmp_path / "other-store"))
    restored = tables_of(other_url)
    (noted,) = set(restored["audit_inbox"]) - set(tables_of(url_of(farm))["audit_inbox"])
    assert '"restored"' in noted
    restored["audit_inbox"].remove(noted)
    assert restored == tables_of(url_of(farm))
    other = farm_on(other_url, tmp_path / "other-store")
    try:
        schema.check_schema(other.services.uow.engine)
        other.end_leases()
        assert len(reap(other.services)) == 1
        other.add_device()
        other.run_until_quiet()
        finished = other.job(job.id)
        assert (finished.state, finished.trials) == (JobState.SUCCEEDED, 40)
        after = other.trials(job.id)
        assert after[: len(before)] == before
        assert len({(trial.position, trial.config_key) for trial in after}) == len(after)
        with other.services.uow.read() as repos:
            artifact = repos.artifacts.for_job(job.id)
            assert artifact is not None
            assert other.services.blobs.path(artifact.sha256).is_file()
            assert sum(repos.counters.all()[Counter.TRIALS].values()) == 48
    finally:
        other.services.close()


@pytest.mark.matrix(every=4, each_value=False)
def test_it_is_one_moment_of_a_running_farm(farm: Farm, other_url: str, tmp_path: Path) -> None:
    """While one thread tunes, backups are made: in each, counters and trials agree, as in no other moment's mixture."""
    farm.add_device()
    model = farm.upload(Scenario(tasks=2))
    farm.run()
    jobs = [farm.submit(model, trials=24, seed=seed) for seed in range(3)]
    ended = threading.Event()

    def work() -> None:
        farm.run_until_quiet()
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    backups = []
    try:
        while not backups or (len(backups) < 6 and not ended.wait(0.2)):
            backups.append(tmp_path / f"backup-{len(backups)}")
            back_up(url_of(farm), farm.services.blobs, backups[-1])
    finally:
        thread.join(120)
    assert all(farm.job(job.id).state is JobState.SUCCEEDED for job in jobs)
    for path in (backups[0], backups[len(backups) // 2]):
        restore(path, database_url=other_url, store=BlobStore(tmp_path / "other-store"), replace=True)
        other = farm_on(other_url, tmp_path / "other-store")
        try:
            with other.services.uow.read() as repos:
                counted = sum(repos.counters.all()[Counter.TRIALS].values())
                query = select(func.count()).select_from(TrialRow)
                assert repos._connection.execute(query).scalar_one() == counted
                assert sum(other.job(job.id).trials for job in jobs) == counted
                for job in jobs:
                    artifact = repos.artifacts.for_job(job.id)
                    assert artifact is None or other.services.blobs.path(artifact.sha256).is_file()
        finally:
            other.services.close()


@pytest.mark.matrix(every=4, each_value=False)
def test_what_is_there_is_kept_unless_told(farm: Farm, other_url: str, tmp_path: Path) -> None:
    farm.upload(Scenario(tasks=1))
    store = BlobStore(tmp_path / "other-store")
    back_up(url_of(farm), farm.services.blobs, tmp_path / "backup")
    with pytest.raises(FileExistsError):
        back_up(url_of(farm), farm.services.blobs, tmp_path / "backup")

    schema.upgrade(other_url)  # a schema without rows is nothing to lose
    restore(tmp_path / "backup", database_url=other_url, store=store)
    before = tables_of(other_url)
    with pytest.raises(ConflictError, match="not empty") as refused:
        restore(tmp_path / "backup", database_url=other_url, store=store)
    assert refused.value.code == "not-empty"
    assert tables_of(other_url) == before

    farm.upload(Scenario(tasks=2))
    back_up(url_of(farm), farm.services.blobs, tmp_path / "later")
    restore(tmp_path / "later", database_url=other_url, store=store, replace=True)
    assert len(tables_of(other_url)["models"]) == 2


def test_a_blob_that_the_store_lost(farm: Farm, other_url: str, tmp_path: Path) -> None:
    model = farm.upload(Scenario(tasks=1))
    farm.services.blobs.delete(model.sha256)
    backup = back_up(url_of(farm), farm.services.blobs, tmp_path / "backup")
    assert backup.missing == (model.sha256,)
    store = BlobStore(tmp_path / "other-store")
    assert restore(tmp_path / "backup", database_url=other_url, store=store).missing == backup.missing
    with pytest.raises(NotFoundError):
        store.path(model.sha256)


def rewrite(path: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    """Write the archive again, with members changed, or left out where the change is None."""
    with tarfile.open(path) as archive:
        members = [(entry.name, archive.extractfile(entry).read()) for entry in archive]  # type: ignore[union-attr]
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            changed = change(name, data)
            if changed is not None:
                entry = tarfile.TarInfo(name)
                entry.size = len(changed)
                archive.addfile(entry, io.BytesIO(changed))


def without_last_lines(name: str, data: bytes) -> bytes:
    if name != DATABASE:
        return data
    return gzip.compress(b"".join(gzip.decompress(data).splitlines(keepends=True)[:-3]))


def with_broken_middle(name: str, data: bytes) -> bytes:
    """Damage the middle, which gzip then refuses; the head and the end stay intact."""
    return data[:40] + b"\xff" * 200 + data[240:] if name == DATABASE else data


def of_the_future(name: str, data: bytes) -> bytes:
    return data.replace(f'"{schema.head()}"'.encode(), b'"9999"') if name == MANIFEST else data


DAMAGES: dict[str, Callable[[str, bytes], bytes | None]] = {
    "a changed blob": lambda name, data: data[:-1] + b"?" if name.startswith("store/") else data,
    "no blob": lambda name, data: None if name.startswith("store/") else data,
    "no database": lambda name, data: None if name == DATABASE else data,
    "a damaged database": lambda name, data: data[:-20] if name == DATABASE else data,
    "a database with a broken middle": with_broken_middle,
    "a database without its end": without_last_lines,
    "rows that do not fit": lambda name, data: (
        gzip.compress(gzip.decompress(data).replace(b'"sha256",', b'"sha999",', 1))
        if name == DATABASE
        else data
    ),
    "no manifest": lambda name, data: None if name == MANIFEST else data,
    "another manifest": lambda name, data: b'{"format":1}' if name == MANIFEST else data,
    "another format": lambda name, data: (
        data.replace(b'"format": 1', b'"format": 2') if name == MANIFEST else data
    ),
    "a schema of the future": of_the_future,
}


@pytest.fixture
def small_backup(tmp_path: Path) -> Backup:
    farm = farm_on(f"sqlite:///{tmp_path / 'small.db'}", tmp_path / "store")
    farm.upload(Scenario(tasks=1))
    backup = back_up(url_of(farm), farm.services.blobs, tmp_path / "backup")
    farm.services.close()
    return backup


def test_of_two_backups_to_one_file_one_gets_it(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, both wrote to one file of a fixed name, and each removed the other's."""
    farm.upload(Scenario())
    path, begun = tmp_path / "backups" / "farm.backup", threading.Barrier(2)
    path.parent.mkdir()

    def dump_beside_another(*arguments: Any) -> Any:
        begun.wait(60)
        return _dump(*arguments)

    monkeypatch.setattr("tunefarm_app.operations.backup._dump", dump_beside_another)

    def take(_number: int) -> str:
        try:
            back_up(url_of(farm), farm.services.blobs, path)
        except FileExistsError as error:
            return f"{error.filename} {error.strerror}"
        return "taken"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(take, range(2))) == [f"{path} exists already", "taken"]
    assert len(check_backup(path).blobs) == 1
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.matrix(every=3)
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_backup_changes_nothing(
    damage: str, small_backup: Backup, other_url: str, tmp_path: Path
) -> None:
    schema.upgrade(other_url)
    keep = farm_on(other_url, tmp_path / "other-store")
    keep.upload(Scenario(tasks=2))
    keep.services.close()
    before = tables_of(other_url)
    rewrite(tmp_path / "backup", DAMAGES[damage])
    with pytest.raises(InvalidInputError) as refused:
        restore(
            tmp_path / "backup",
            database_url=other_url,
            store=BlobStore(tmp_path / "other-store"),
            replace=True,
        )
    assert refused.value.code == "bad-backup"
    assert tables_of(other_url) == before


@pytest.mark.parametrize("size", [0, 1, 700, 5000, -1])
def test_a_cut_off_backup_is_told_as_such(small_backup: Backup, tmp_path: Path, size: int) -> None:
    complete = (tmp_path / "backup").read_bytes()
    end = complete.rstrip(b"\0")
    (tmp_path / "backup").write_bytes(end[:size])
    with pytest.raises(InvalidInputError) as refused:
        check_backup(tmp_path / "backup")
    assert refused.value.code == "bad-backup"


def test_a_farm_at_work_is_not_replaced(
    small_backup: Backup, new_postgres_url: Callable[[], str], tmp_path: Path
) -> None:
    url = new_postgres_url()
    schema.upgrade(url)
    farm = farm_on(url, tmp_path / "other-store")
    store = farm.services.blobs
    with farm.services.uow.read() as repos:
        repos.now()  # a connection that stays open
    with pytest.raises(ConflictError, match="stop its API and worker") as refused:
        restore(tmp_path / "backup", database_url=url, store=store, replace=True)
    assert refused.value.code == "in-use"
    farm.services.close()
    restore(tmp_path / "backup", database_url=url, store=store, replace=True)


def test_a_backup_of_an_older_release(small_backup: Backup, other_url: str, tmp_path: Path) -> None:
    """Its database is read under its own schema, and brought up to date."""

    old_url = f"sqlite:///{tmp_path / 'small.db'}"
    schema.downgrade(old_url, "0003")
    engine = make_engine(old_url)
    with engine.connect() as connection:
        tables = MetaData()
        tables.reflect(connection)
        lines = []
        for table in tables.sorted_tables:
            if table.name != "alembic_version":
                lines.append(json.dumps({"table": table.name, "columns": table.columns.keys()}))
                lines += [json.dumps(list(row)) for row in connection.execute(select(table))]
    engine.dispose()
    lines.append(json.dumps({"rows": sum(line.startswith("[") for line in lines)}))

    def made_older(name: str, data: bytes) -> bytes:
        if name == MANIFEST:
            return data.replace(f'"{schema.head()}"'.encode(), b'"0003"')
        return gzip.compress("\n".join(lines).encode() + b"\n") if name == DATABASE else data

    rewrite(tmp_path / "backup", made_older)
    restore(tmp_path / "backup", database_url=other_url, store=BlobStore(tmp_path / "other-store"))
    engine = make_engine(other_url)
    schema.check_schema(engine)
    engine.dispose()
    assert len(tables_of(other_url)["models"]) == 1
