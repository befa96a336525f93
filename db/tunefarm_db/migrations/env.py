"""Alembic's entry: runs revisions on the connection that `tunefarm_db.schema` put into the config."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection

from tunefarm_db.tables import Base
from tunefarm_db.tables.columns import EnumText, JsonText


def _render_item(kind: str, item: Any, _context: AutogenContext) -> str | Literal[False]:
    # A revision must not import Python types of the present code: they change, a revision does not.
    if kind == "type" and isinstance(item, EnumText):
        return "sa.Text()"
    if kind == "type" and isinstance(item, JsonText):
        return "sa.JSON()"
    return False


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_type=True,
        render_as_batch=connection.dialect.name == "sqlite",
        render_item=_render_item,
        # Alembic assumes that SQLite cannot roll back a schema change. Here it can: our engine begins transactions.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


_run(context.config.attributes["connection"])
