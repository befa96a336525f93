"""The audit log may be pruned from its begin, as far as an entry of itself says so.

Revision ID: 0032
Revises: 0030
Created: 2026-11-27
"""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0030"
branch_labels = None
depends_on = None

_REFUSED = "the audit log only grows"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER audit_log_only_grows ON audit_log")
        op.execute(
            "CREATE TRIGGER audit_log_only_grows BEFORE UPDATE OR TRUNCATE ON audit_log "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_only_grows()"
        )
        op.execute(
            "CREATE OR REPLACE FUNCTION audit_log_is_pruned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "  # noqa: S608  (as below)
            "IF EXISTS (SELECT 1 FROM audit_log WHERE action = 'audit-pruned' AND seq > OLD.seq "
            "AND (details->>'to')::bigint >= OLD.seq) THEN RETURN OLD; END IF; "
            f"RAISE EXCEPTION '{_REFUSED}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_log_is_pruned BEFORE DELETE ON audit_log "
            "FOR EACH ROW EXECUTE FUNCTION audit_log_is_pruned()"
        )
    else:
        op.execute("DROP TRIGGER audit_log_no_delete")
        op.execute(
            "CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log "  # noqa: S608  (no value of a user)
            "WHEN NOT EXISTS (SELECT 1 FROM audit_log WHERE action = 'audit-pruned' AND seq > OLD.seq "
            "AND json_extract(details, '$.to') >= OLD.seq) "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        )


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER audit_log_is_pruned ON audit_log")
        op.execute("DROP FUNCTION audit_log_is_pruned()")
        op.execute("DROP TRIGGER audit_log_only_grows ON audit_log")
        op.execute(
            "CREATE TRIGGER audit_log_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_only_grows()"
        )
    else:
        op.execute("DROP TRIGGER audit_log_no_delete")
        op.execute(
            "CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        )
