"""An audit log that only grows: the database itself refuses to change or delete its entries.

Revision ID: 0027
Revises: 0026
Created: 2026-11-26
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_REFUSED = "the audit log only grows"


def _entry() -> list[sa.Column[object]]:
    return [
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
    ]


def upgrade() -> None:
    op.create_table(
        "audit_inbox",
        sa.Column("id", sa.Text(), nullable=False),
        *_entry(),
        sa.PrimaryKeyConstraint("id", name="pk_audit_inbox"),
    )
    op.create_table(
        "audit_log",
        sa.Column("seq", sa.Integer(), nullable=False, autoincrement=False),
        *_entry(),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_log"),
    )
    for column in ("actor", "action", "subject"):
        op.create_index(f"ix_audit_log_{column}_seq", "audit_log", [column, "seq"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            # A restore drops tables, not functions.
            "CREATE OR REPLACE FUNCTION audit_log_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_log_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_only_grows()"
        )
    else:
        for event in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_log_no_{event.lower()} BEFORE {event} ON audit_log "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
            )
        op.execute(
            # INSERT OR REPLACE deletes without a DELETE.
            "CREATE TRIGGER audit_log_no_replace BEFORE INSERT ON audit_log "  # noqa: S608  (no value of a user)
            "WHEN NEW.seq <= (SELECT coalesce(max(seq), 0) FROM audit_log) "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        )


def downgrade() -> None:
    # Whoever goes back keeps an export, if the log is to be kept.
    op.drop_table("audit_log")
    op.drop_table("audit_inbox")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_log_only_grows()")
