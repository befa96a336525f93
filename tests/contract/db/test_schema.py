"""The migrations make the schema that the code declares, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.tables import Base
from tunefarm_tuning.errors import ConflictError


def test_migrations_and_tables_agree(database_url: str) -> None:
    schema.upgrade(database_url)
    engine = make_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_partial_indexes_are_partial(database_url: str) -> None:
    """Alembic does not compare an index's WHERE."""
    schema.upgrade(database_url)
    engine = make_engine(database_url)
    found = {
        index["name"]: index["dialect_options"].get(f"{engine.dialect.name}_where")
        for table in ("models", "records", "trials")
        for index in inspect(engine).get_indexes(table)
    }
    engine.dispose()
    for name in ("uq_models_sha256_shapes_key", "ix_records_best", "uq_trials_job_id_position_config_key"):
        assert found[name] is not None, name


def test_up_and_down_and_up(database_url: str) -> None:
    engine = make_engine(database_url)
    assert schema.current(engine) is None
    with pytest.raises(ConflictError, match="tunefarm db upgrade") as outdated:
        schema.check_schema(engine)
    assert outdated.value.code == "schema-outdated"

    schema.upgrade(database_url)
    schema.upgrade(database_url)  # again: nothing to do
    assert schema.current(engine) == schema.head()
    schema.check_schema(engine)

    schema.downgrade(database_url, "base")
    assert schema.current(engine) is None
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    schema.upgrade(database_url)
    schema.check_schema(engine)
    engine.dispose()


def test_processes_may_upgrade_at_once(database_url: str) -> None:
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for done in [pool.submit(schema.upgrade, database_url) for pool in (first, second)]:
            done.result(120)
    engine = make_engine(database_url)
    schema.check_schema(engine)
    engine.dispose()
