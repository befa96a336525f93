"""Files that the previous release wrote: see tests/release_7936aea/README.md."""

from __future__ import annotations

import gzip
import json
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from app_farm import Farm, farm_settings, make_farm
from repository import ROOT

from tunefarm_db import schema


@pytest.fixture(scope="session")
def copies() -> Path:
    return ROOT / "tests" / "release_7936aea"


@pytest.fixture
def facts(copies: Path) -> Any:
    """Return the facts that were noted with the old farm: identifiers, keys, and the state of each job."""
    return json.loads((copies / "farm.json").read_text(encoding="utf-8"))


@pytest.fixture
def farm_folder(copies: Path, tmp_path: Path) -> Path:
    """A copy of the old farm's database, as it was left, and its store."""
    with zipfile.ZipFile(copies / "farm.zip") as archive:
        archive.extractall(tmp_path)
    as_if_left_now(f"sqlite:///{tmp_path / 'farm.db'}")
    return tmp_path


@pytest.fixture
def postgres_url(copies: Path, new_postgres_url: Callable[[], str]) -> str:
    """URL of the old farm's database in PostgreSQL, as it was left."""
    url = new_postgres_url()
    with psycopg.connect(url) as connection:
        connection.execute(gzip.decompress((copies / "farm.sql.gz").read_bytes()))
    as_if_left_now(url)
    return url


def as_if_left_now(url: str) -> None:
    """Move all times of an old database, so that what a farm keeps for some hours has not expired when the tests run."""
    engine = sqlalchemy.create_engine(url)
    tables = sqlalchemy.MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:
        left_at = connection.execute(
            sqlalchemy.select(sqlalchemy.func.max(tables.tables["jobs"].c.updated_at))
        )
        age_sec = time.time() - left_at.scalar_one()
        for table in tables.sorted_tables:
            times = [column for column in table.c if column.name.endswith(("_at", "_until"))]
            floats = [column for column in times if isinstance(column.type, sqlalchemy.Float)]
            if floats:
                connection.execute(table.update().values({column: column + age_sec for column in floats}))
    engine.dispose()


@pytest.fixture(params=["database", "postgresql", "backup"])
def old_farm(request: pytest.FixtureRequest, copies: Path, tmp_path: Path) -> Iterator[Farm]:
    """A farm of this release on the old database and store: the files, the rows in PostgreSQL, or their backup restored."""
    changes: dict[str, Any] = {"device_retry_sec": 0.01, "step_turn_sec": 0.0}
    if request.param == "postgresql":
        changes["database_url"] = request.getfixturevalue("postgres_url")
    settings = farm_settings(tmp_path, **changes)
    url = settings.database_url.get_secret_value()
    if request.param != "backup":
        request.getfixturevalue("farm_folder")  # and its store
        schema.upgrade(url)
    else:
        from tunefarm_app.operations.backup import restore
        from tunefarm_app.storage.blob_store import BlobStore

        backup = shutil.copy(copies / "farm.backup", tmp_path)
        restore(Path(backup), database_url=url, store=BlobStore(settings.store_dir), keep_keys=True)
        as_if_left_now(url)
    farm = make_farm(settings)
    yield farm
    farm.services.close()
