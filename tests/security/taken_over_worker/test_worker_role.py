"""Whoever has a worker's connection to PostgreSQL gets at no key and no secret, and cannot plant any."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import psycopg
import pytest
from private_postgres import OWNER, WORKER, RoledPostgres, roled_postgres
from psycopg.errors import InsufficientPrivilege
from pydantic import SecretStr
from sqlalchemy import text

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.runtime.composition import compose
from tunefarm_app.settings import Settings
from tunefarm_db import schema
from tunefarm_db.dump import dump, load
from tunefarm_db.engine import make_engine
from tunefarm_db.schema import head, upgrade
from tunefarm_db.tables import Base
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import AuditAction
from tunefarm_db.worker_role import RIGHTS, grant_to_worker
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TransientError

ATTACKS = {
    "read the hashes of keys": "SELECT secret_sha256 FROM api_keys",
    "read which keys there are": "SELECT id FROM api_keys",
    "plant a key": "INSERT INTO api_keys (id, name, secret_sha256, scopes, created_at, limits) VALUES ('k', 'k', 'h', '[]', 0, '{}')",
    "give a key more rights": "UPDATE api_keys SET scopes = '[\"admin\"]'",
    "revoke everybody's keys": "DELETE FROM api_keys",
    "read a webhook's secret": "SELECT secret FROM webhooks",
    "read where webhooks lead": "SELECT url FROM webhooks",
    "read whole webhooks": "SELECT * FROM webhooks",
    "lead a webhook elsewhere": "UPDATE webhooks SET url = 'http://127.0.0.1'",
    "add a webhook": "INSERT INTO webhooks (id, url, kinds, secret, created_at) VALUES ('w', 'u', '[]', 's', 0)",
    "read the audit log": "SELECT * FROM audit_log",
    "add to the audit log": "INSERT INTO audit_log (seq, at, via, address, action, details, hash) VALUES (1, 0, '', '', '', '{}', '')",
    "empty the audit log": "TRUNCATE audit_log",
    "say that somebody else did something": "INSERT INTO audit_inbox (id, at, via, address, action, details, actor) VALUES ('a', 0, '', '', 'key-created', '{}', 'key')",
    "hold entries of the audit log back": "DELETE FROM audit_inbox",
    "free the audit log": "DROP TRIGGER audit_log_only_grows ON audit_log",
    "switch the audit log's trigger off": "ALTER TABLE audit_log DISABLE TRIGGER ALL",
    "take a table": "ALTER TABLE api_keys OWNER TO tunefarm_worker",
    "give itself rights": "GRANT SELECT ON api_keys TO tunefarm_worker",
    "become the owner": "SET ROLE tunefarm",
    "become the superuser": "SET ROLE postgres",
    "make a superuser": "CREATE ROLE mine SUPERUSER",
    "make a function that runs as others": "CREATE FUNCTION public.now2() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "make a table": "CREATE TABLE public.mine (id int)",
    "read a file of the server": "SELECT pg_read_file('/etc/passwd')",
    "read a file as a large object": "SELECT lo_import('/etc/passwd')",
    "write a file as a large object": "SELECT lo_export(1, '/tmp/planted')",
    "read a file into a table": "COPY findings FROM '/etc/passwd'",
    "run a program into a table": "COPY findings FROM PROGRAM 'id'",
    "look into the server's folder": "SELECT pg_ls_dir('.')",
    "read passwords": "SELECT rolpassword FROM pg_authid",
    "read who may connect": "SELECT * FROM pg_hba_file_rules",
    "read samples of keys": "SELECT * FROM pg_statistic",
    "read a secret by its order": "SELECT id FROM webhooks ORDER BY secret",
    "read a webhook as a row": "SELECT row_to_json(webhooks) FROM webhooks",
    "read keys by a query in a text": "SELECT query_to_xml('SELECT * FROM api_keys', true, true, '')",
    "change keys by a merge": "MERGE INTO api_keys USING (SELECT 1) AS s ON true WHEN MATCHED THEN UPDATE SET scopes = '[]'",
    "lock the keys": "LOCK TABLE api_keys IN ACCESS SHARE MODE",
    "lock the audit log's inbox": "LOCK TABLE audit_inbox IN ACCESS SHARE MODE",
    "put a trigger on a table": "CREATE TRIGGER t BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "put a rule on a table": "CREATE RULE r AS ON INSERT TO jobs DO INSTEAD NOTHING",
    "put a view in the owner's way": "CREATE VIEW public.mine AS SELECT 1",
    "make a schema": "CREATE SCHEMA mine",
    "make a temporary table": "CREATE TEMPORARY TABLE mine (id int)",
    "make an operator": "CREATE OPERATOR public.=== (LEFTARG = int, RIGHTARG = int, PROCEDURE = int4eq)",
    "change the server's settings": "SELECT pg_reload_conf()",
    "change the owner's path": "ALTER ROLE tunefarm SET search_path = pg_temp",
    "change the database's path": "ALTER DATABASE tunefarm SET search_path = pg_temp",
    "load code at each connection": "ALTER ROLE tunefarm_worker SET session_preload_libraries = 'planted'",
    "become more": "ALTER ROLE tunefarm_worker SUPERUSER",
    "be a reader of files": "SET ROLE pg_read_server_files",
    "copy the server": "SELECT pg_create_physical_replication_slot('mine')",
    "hear of all changes": "CREATE PUBLICATION mine FOR ALL TABLES",
    "end the API's connections": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tunefarm'",
    "cancel the API's queries": "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'tunefarm'",
    "run a program": "COPY (SELECT 1) TO PROGRAM 'true'",
    "write a file of the server": "COPY (SELECT 1) TO '/tmp/planted'",
    "load code": "LOAD '/tmp/planted.so'",
    "say that it is no replica": "SET session_replication_role = replica",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoledPostgres]:
    with roled_postgres() as server:
        upgrade(server.url_of(OWNER))
        grant_to_worker(server.url_of(OWNER), WORKER)
        services = compose(
            Settings(
                database_url=SecretStr(server.url_of(OWNER)),
                broker_url=SecretStr("redis://127.0.0.1:1/0"),
                store_dir=tmp_path_factory.mktemp("store"),
            )
        )
        create_api_key(services, name="admin")
        with services.uow.write() as repos:
            repos.webhooks.add(url="https://example.org/secret", kinds=[], job_id=None, secret="whs_secret")
        services.close()
        yield server


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_worker_has_no_right_to(attack: str, server: RoledPostgres) -> None:
    with (
        psycopg.connect(server.url_of(OWNER)),  # a connection of the API's
        psycopg.connect(server.url_of(WORKER)) as connection,
        pytest.raises(InsufficientPrivilege),
    ):
        connection.execute(ATTACKS[attack])


@pytest.mark.parametrize("database", ["postgres", "template1"])
@pytest.mark.parametrize("role", [WORKER, OWNER])
def test_other_databases_of_the_server_are_closed(role: str, database: str, server: RoledPostgres) -> None:
    """Before, each role could connect there, and fill the disk with temporary tables that no owner of ours can look at."""
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(server.url_of(role).replace("/tunefarm?", f"/{database}?"))


def test_nothing_is_seen_of_what_the_api_asks(server: RoledPostgres) -> None:
    with psycopg.connect(server.url_of(OWNER)) as api, psycopg.connect(server.url_of(WORKER)) as worker:
        api.execute("SELECT 'a secret'")
        seen = worker.execute("SELECT query FROM pg_stat_activity WHERE usename = %s", [OWNER]).fetchall()
        assert {query for (query,) in seen} <= {"<insufficient privilege>"}
        assert worker.execute("SELECT count(*) FROM pg_stats WHERE tablename = 'api_keys'").fetchone() == (0,)
        functions = "SELECT count(*) FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace"
        assert worker.execute(functions).fetchone() == (0,), "none runs with the rights of its owner"


def test_the_owner_is_no_superuser(server: RoledPostgres) -> None:
    with psycopg.connect(server.url_of(OWNER)) as connection:
        row = connection.execute(
            "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        assert row == (False,) * 5
        for attack in ("run a program", "read a file of the server", "become the superuser"):
            with connection.transaction(force_rollback=True), pytest.raises(InsufficientPrivilege):
                connection.execute(ATTACKS[attack])


def test_rights_are_those_that_are_listed_and_no_others(server: RoledPostgres) -> None:
    """Also after a right that somebody gave by hand."""
    with psycopg.connect(server.url_of(OWNER)) as connection:
        connection.execute(f"GRANT SELECT ON api_keys TO {WORKER}")
    grant_to_worker(server.url_of(OWNER), WORKER)
    with psycopg.connect(server.url_of(WORKER)) as connection:
        for table in Base.metadata.tables:
            reads, writes = connection.execute(
                "SELECT has_table_privilege(%(table)s, 'SELECT'), has_table_privilege(%(table)s, 'UPDATE')",
                {"table": table},
            ).fetchone() or (None, None)
            assert (reads, writes) == ((True, True) if table not in RIGHTS else (False, False)), table


def test_no_table_with_secrets_is_forgotten() -> None:
    """Workers have all rights in tables that are not listed: whoever adds one with secrets has to list it."""
    secret = re.compile("secret|token|passw|credential|private", re.IGNORECASE)
    tables = {
        table.name: [column.name for column in table.columns if secret.search(column.name)]
        for table in Base.metadata.sorted_tables
    }
    assert tables["api_keys"], "else the words are wrong"
    assert {name for name, columns in tables.items() if columns} <= RIGHTS.keys()


@pytest.mark.parametrize("role", [OWNER, "postgres", "nobody-of-this-name", "reader"])
def test_a_role_that_is_too_strong_or_missing_is_refused(role: str, server: RoledPostgres) -> None:
    with psycopg.connect(server.server.url, autocommit=True) as connection:
        if role == "reader":
            connection.execute("CREATE ROLE reader LOGIN IN ROLE pg_read_server_files")
    with pytest.raises(InvalidInputError) as caught:
        grant_to_worker(server.url_of(OWNER), role)
    assert caught.value.code == ("no-such-role" if role.startswith("nobody") else "role-too-strong")
    assert role in caught.value.message


def test_a_worker_that_holds_locks_does_not_hold_entries_back(server: RoledPostgres) -> None:
    """Every role can take advisory locks, by any number."""
    former_lock = 0x7466_6175
    engine = make_engine(server.url_of(OWNER))
    with psycopg.connect(server.url_of(WORKER), autocommit=True) as worker:
        worker.execute("SELECT pg_advisory_lock(%s)", [former_lock])
        with pytest.raises(InsufficientPrivilege):
            worker.execute("SELECT 1 FROM alembic_version FOR UPDATE")
        with UnitOfWork(engine).write() as repos:
            repos.audit.note(AuditAction.JOB_CANCELLED, "job")
            assert repos.audit.seal() >= 1
            assert repos.audit.is_sealed()
    engine.dispose()


def test_a_worker_that_holds_locks_does_not_hold_an_upgrade_up(server: RoledPostgres) -> None:
    url = server.url_of(OWNER)
    with psycopg.connect(server.url_of(WORKER), autocommit=True) as worker:
        worker.execute("SELECT pg_advisory_lock(%s)", [schema._LOCK])
        began = time.monotonic()
        upgrade(url)
        assert time.monotonic() - began < schema._LOCK_SEC / 2


def test_who_holds_a_table_that_a_migration_needs_is_named(
    server: RoledPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that reads in a transaction that never ends."""
    monkeypatch.setattr(schema, "_TABLE_LOCK_SEC", 1)
    with psycopg.connect(server.url_of(WORKER)) as worker:
        worker.execute("SELECT 1 FROM jobs")
        pid = worker.info.backend_pid
        with (
            pytest.raises(TransientError, match=f"process {pid} of the role {WORKER}") as caught,
            schema.locked(server.url_of(OWNER)) as connection,
        ):
            connection.execute(text("ALTER TABLE jobs ADD COLUMN x int"))
    assert caught.value.code == "schema-locked"


def test_two_upgrades_take_turns(server: RoledPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_LOCK_SEC", 1)
    with schema.locked(server.url_of(OWNER)), pytest.raises(TransientError) as caught:
        upgrade(server.url_of(OWNER))
    assert caught.value.code == "schema-locked"


BEHIND_ITS_BACK = {
    "a group": ("CREATE ROLE people", "GRANT SELECT ON api_keys TO people", f"GRANT people TO {WORKER}"),
    "a group's column": (
        "CREATE ROLE people",
        "GRANT UPDATE (secret) ON webhooks TO people",
        f"GRANT people TO {WORKER}",
    ),
    "everybody": ("GRANT INSERT ON audit_log TO PUBLIC",),
    "everybody makes tables": ("GRANT CREATE ON SCHEMA public TO PUBLIC",),
    "it makes schemas": (f"GRANT CREATE ON DATABASE tunefarm TO {WORKER}",),
    "a view": (
        "CREATE VIEW keys AS SELECT * FROM api_keys",
        "GRANT SELECT ON keys TO PUBLIC",
    ),
}


@pytest.mark.parametrize("way", BEHIND_ITS_BACK)
def test_a_role_that_has_more_in_another_way_is_refused(way: str, server: RoledPostgres) -> None:
    url = server.server.url.replace("/postgres?", "/tunefarm?")
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in BEHIND_ITS_BACK[way]:
            connection.execute(statement)
        try:
            with pytest.raises(InvalidInputError, match="more than workers may") as caught:
                grant_to_worker(server.url_of(OWNER), WORKER)
            assert caught.value.code == "role-too-strong"
        finally:
            for statement in (
                "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC",
                "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
                f"REVOKE CREATE ON DATABASE tunefarm FROM {WORKER}",
                "DROP VIEW IF EXISTS keys",
            ):
                connection.execute(statement)
            if "people" in "".join(BEHIND_ITS_BACK[way]):
                connection.execute("DROP OWNED BY people")
                connection.execute("DROP ROLE people")
    grant_to_worker(server.url_of(OWNER), WORKER)


def test_a_restore_sees_workers_of_their_own_role(server: RoledPostgres) -> None:
    """The owner, who is no superuser, is told little of other roles' connections, but enough for this."""
    worker = make_engine(server.url_of(WORKER))
    with worker.connect(), pytest.raises(ConflictError) as caught:
        load(server.url_of(OWNER), dumped(server), revision=head(), replace=True)
    worker.dispose()
    assert caught.value.code == "in-use"


def test_after_a_restore_the_role_has_nothing_until_it_is_granted_again(server: RoledPostgres) -> None:
    load(server.url_of(OWNER), dumped(server), revision=head(), replace=True)
    with psycopg.connect(server.url_of(WORKER)) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute("SELECT id FROM jobs")
    grant_to_worker(server.url_of(OWNER), WORKER)
    with psycopg.connect(server.url_of(WORKER)) as connection:
        connection.execute("SELECT id FROM jobs")


def dumped(server: RoledPostgres) -> list[str]:
    engine = make_engine(server.url_of(OWNER))
    lines = list(dump(engine))
    engine.dispose()
    return lines
