"""The rights of the role that workers connect to PostgreSQL as: it runs steps, and sees no keys and no secrets.

A worker handles strangers' files. Whoever took one over would have its connection to the database, so that role reads no API key, no
webhook's URL or secret and no audit log, and writes none of them (docs/adr/0075-workers-have-a-role-of-their-own.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy import Connection, text

from tunefarm_db.engine import parse_url
from tunefarm_db.schema import locked
from tunefarm_db.tables import Base
from tunefarm_tuning.core.errors import InvalidInputError

_EVERYTHING = ("SELECT, INSERT, UPDATE, DELETE",)
RIGHTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "api_keys": (),
        "audit_log": (),
        "audit_inbox": (),
        "reserved_bytes": (),
        "webhooks": ("SELECT (id, kinds, job_id, disabled_at)",),
        "alembic_version": ("SELECT",),
    }
)
"""What a worker may do with a table; of all others, everything."""


def grant_to_worker(url: str, role: str) -> None:
    """Give a role the rights of a worker, and no others; to be repeated after each upgrade, which may have added tables.

    Args:
        url: The database, as its owner.
        role: A role that can log in, which must exist.

    Raises:
        InvalidInputError: ``wrong-database`` for SQLite, which has no roles; ``no-such-role``; ``role-too-strong`` if the role is a
            superuser, the owner, or can become either, or has more than it is given by other roles or PUBLIC.
        TransientError: If the database is away.
    """
    if parse_url(url).get_backend_name() != "postgresql":
        raise InvalidInputError(
            "only PostgreSQL has roles: leave --worker-role out for SQLite", code="wrong-database"
        )
    with locked(url) as connection:
        _refuse_strong(connection, role)
        name = connection.dialect.identifier_preparer.quote(role)
        connection.execute(text(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name}"))
        connection.execute(text(f"GRANT USAGE ON SCHEMA public TO {name}"))
        for table in (*Base.metadata.tables, "alembic_version"):
            for right in RIGHTS.get(table, _EVERYTHING):
                connection.execute(text(f'GRANT {right} ON "{table}" TO {name}'))
        _refuse_more(connection, role)


def _refuse_more(connection: Connection, role: str) -> None:
    """Refuse a role that has more than it was given now: by another role that it is in, by PUBLIC, or in the schema itself.

    Whoever makes things in the schema, or schemas in the database, can put a function where the owner calls another.
    """
    query = text(
        "SELECT kind || ' on ' || name FROM (VALUES "
        "('CREATE', 'the schema public', has_schema_privilege(:role, 'public', 'CREATE')), "
        "('CREATE', 'the database', has_database_privilege(:role, current_database(), 'CREATE'))"
        ") AS places (kind, name, has) WHERE has UNION ALL "
        "SELECT kind || ' on ' || relname || coalesce('.' || attname, '') FROM pg_class "
        "CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE'), ('TRUNCATE'), ('REFERENCES'), ('TRIGGER')) AS kinds (kind) "
        "LEFT JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped "
        "AND kind IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') "
        "WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') "
        "AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e') "
        "AND CASE WHEN attnum IS NULL THEN has_table_privilege(:role, pg_class.oid, kind) "
        "ELSE has_column_privilege(:role, pg_class.oid, attnum, kind) END "
        "AND NOT EXISTS (SELECT FROM aclexplode(coalesce(relacl, '{}') || coalesce(attacl, '{}')) AS given "
        "WHERE given.grantee = to_regrole(quote_ident(:role)) AND given.privilege_type = kind)"
    )
    more = connection.execute(query, {"role": role}).scalars().all()
    if more:
        raise InvalidInputError(
            f"the role {role!r} has more than workers may, by another role or by PUBLIC: {', '.join(more[:5])}: revoke it",
            code="role-too-strong",
        )


def _refuse_strong(connection: Connection, role: str) -> None:
    """Refuse a role that has, or can get, more than it is given."""
    rights = connection.execute(
        text(
            "SELECT rolsuper OR rolcreaterole OR rolbypassrls OR rolreplication AS strong, "
            "pg_has_role(rolname, current_user, 'MEMBER') AS owner, "
            "EXISTS (SELECT FROM pg_roles AS other WHERE pg_has_role(mine.rolname, other.oid, 'MEMBER') "
            "AND (other.rolsuper OR other.rolname LIKE 'pg\\_%')) AS member "
            "FROM pg_roles AS mine WHERE rolname = :role"
        ),
        {"role": role},
    ).one_or_none()
    if rights is None:
        raise InvalidInputError(
            f"PostgreSQL has no role {role!r}: make it first (CREATE ROLE {role} LOGIN PASSWORD '…')",
            code="no-such-role",
        )
    if rights.strong or rights.owner or rights.member:
        raise InvalidInputError(
            f"the role {role!r} is the owner, a superuser, or can become one: workers need a role of their own "
            f"(CREATE ROLE tunefarm_worker LOGIN PASSWORD '…')",
            code="role-too-strong",
        )
