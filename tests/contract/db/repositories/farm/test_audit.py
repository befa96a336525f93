"""The audit log: entries come and go with their transaction, are chained in turn, and cannot be changed."""

from __future__ import annotations

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from sqlalchemy import Engine, insert, text
from sqlalchemy.exc import DBAPIError

from tunefarm_db.acting import Acting, act_as
from tunefarm_db.ids import new_id
from tunefarm_db.tables import AuditInboxRow, table_of
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import AuditAction, AuditEntry, WaitingEntries
from tunefarm_text.audit_chain import START, ChainCheck
from tunefarm_tuning.core.errors import ConflictError


def note(uow: UnitOfWork, subject: str) -> None:
    with uow.write() as repos:
        repos.audit.note(AuditAction.KEY_CREATED, subject, name="ci", overlap=0.1)


def seal(uow: UnitOfWork) -> int:
    with uow.write() as repos:
        return repos.audit.seal()


def log_of(uow: UnitOfWork) -> tuple[AuditEntry, ...]:
    with uow.read() as repos:
        return repos.audit.after(0, limit=10_000)


def check(uow: UnitOfWork) -> ChainCheck:
    chain = ChainCheck()
    for entry in log_of(uow):
        chain.take(asdict(entry))
    return chain


def test_entries_are_chained_in_order(uow: UnitOfWork) -> None:
    with act_as(Acting(via="api", address="10.0.0.7", key_id="ab" * 8)):
        note(uow, "first")
    note(uow, "second")
    assert log_of(uow) == ()
    assert seal(uow) == 2
    assert seal(uow) == 0
    note(uow, "third")
    assert seal(uow) == 1
    first, second, third = log_of(uow)
    assert (first.seq, first.subject, first.actor, first.via, first.address) == (
        1,
        "first",
        "ab" * 8,
        "api",
        "10.0.0.7",
    )
    assert (second.actor, second.via) == (None, "farm")
    assert third.details == {"name": "ci", "overlap": 0.1}
    assert check(uow).end() is None
    with uow.read() as repos:
        assert repos.audit.head() == (3, third.hash)
        assert repos.audit.is_sealed()


def test_an_entry_is_committed_with_what_it_tells_of_or_not_at_all(uow: UnitOfWork) -> None:
    with suppress(ZeroDivisionError), uow.write() as repos:
        repos.audit.note(AuditAction.MODEL_DELETED, "mdl_1")
        raise ZeroDivisionError
    assert seal(uow) == 0


def test_the_database_refuses_to_change_the_log(uow: UnitOfWork, engine: Engine) -> None:
    note(uow, "first")
    seal(uow)
    before = log_of(uow)
    statements = ["UPDATE audit_log SET subject = 'x'", "DELETE FROM audit_log"]
    if engine.dialect.name == "postgresql":
        statements.append("TRUNCATE audit_log")
    for statement in statements:
        with pytest.raises(DBAPIError, match="only grows"), engine.begin() as connection:
            connection.execute(text(statement))
    assert log_of(uow) == before


def test_no_insert_replaces_an_entry(uow: UnitOfWork, engine: Engine) -> None:
    note(uow, "first")
    note(uow, "second")
    seal(uow)
    before = log_of(uow)
    conflict = (
        "ON CONFLICT (seq) DO UPDATE SET actor = 'forged'" if engine.dialect.name == "postgresql" else ""
    )
    verb = "INSERT" if conflict else "INSERT OR REPLACE"
    forged = f"{verb} INTO audit_log SELECT seq, at, 'forged', via, address, action, subject, details, hash FROM audit_log"
    with pytest.raises(DBAPIError, match="only grows"), engine.begin() as connection:
        connection.execute(text(f"{forged} WHERE seq = 1 {conflict}"))
    assert log_of(uow) == before
    note(uow, "third")
    assert seal(uow) == 1


LONG = "".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(200))
"""A text that no compression makes fit into an index row."""


def test_what_a_request_sends_is_stored_clean_and_cut(uow: UnitOfWork) -> None:
    with act_as(Acting(via="api", address="x" * 6000, key_id="k\x00" * 3000)), uow.write() as repos:
        repos.audit.note(AuditAction.DOWNLOADED, "job_" + LONG, what="a\x00\x1b\ud800b" * 3000, inf=math.inf)
        repos.audit.note(AuditAction.DOWNLOADED, "job_\x00", ids=[LONG], by={"\x00": "\x00"})
    assert seal(uow) == 2
    long, nul = log_of(uow)
    assert long.subject is not None
    assert long.subject.startswith("job_" + LONG[:96] + "…")
    assert max(len(long.subject), len(long.actor or ""), len(long.address)) < 140
    assert long.details["what"].startswith("a\\x00\\x1b\\ud800b")
    assert len(str(long.details)) + len(str(nul.details)) < 9000
    assert (nul.subject, nul.details["by"]) == ("job_\\x00", {"\\x00": "\\x00"})
    assert check(uow).end() is None


def test_an_entry_that_the_log_cannot_hold_is_replaced_by_a_stand_in(uow: UnitOfWork, engine: Engine) -> None:
    """As an older version, or whoever writes the database, may have left one in the inbox."""
    note(uow, "first")
    with engine.begin() as connection:
        connection.execute(
            insert(table_of(AuditInboxRow)),
            {"id": new_id("aud"), "via": "api", "address": "", "action": AuditAction.DOWNLOADED}
            | {"subject": "job_" + LONG, "details": {"what": "records"}},
        )
        if engine.dialect.name == "sqlite":  # holds any text: a rule of its own stands for PostgreSQL's
            connection.execute(
                text(
                    "CREATE TRIGGER no_long BEFORE INSERT ON audit_log WHEN length(NEW.subject) > 2704 "
                    "BEGIN SELECT zeroblob(1 << 62); END"
                )
            )
    note(uow, "third")
    with uow.read() as repos:
        waiting = repos.audit.waiting()
        assert waiting.count == 3
        assert waiting.since is not None
        assert waiting.since <= repos.now()
    assert seal(uow) == 3
    first, stand_in, third = log_of(uow)
    assert (first.subject, third.subject) == ("first", "third")
    assert stand_in.action is AuditAction.DOWNLOADED
    assert (stand_in.subject or "").startswith("job_" + LONG[:90])
    assert stand_in.details == {"not_as_noted": True, "was": '{"what": "records"}'}
    assert check(uow).end() is None
    with uow.read() as repos:
        assert repos.audit.waiting() == WaitingEntries(count=0, since=None)


@pytest.mark.parametrize("column", ["at", "actor", "via", "address", "action", "subject", "details", "hash"])
def test_a_changed_entry_is_named(uow: UnitOfWork, engine: Engine, column: str) -> None:
    for name in ("a", "b", "c", "d"):
        note(uow, name)
    seal(uow)
    values = {"at": 1.5, "action": "key-revoked", "details": '{"name": "x"}'}
    tamper(engine, f"UPDATE audit_log SET {column} = :value WHERE seq = 3", value=values.get(column, "x"))
    broken = check(uow).end()
    assert broken is not None
    assert broken.seq == 3
    assert "changed" in broken.reason


def test_a_removed_entry_is_named(uow: UnitOfWork, engine: Engine) -> None:
    for name in ("a", "b", "c", "d"):
        note(uow, name)
    seal(uow)
    tamper(engine, "DELETE FROM audit_log WHERE seq = 2")
    broken = check(uow).end()
    assert broken is not None
    assert (broken.seq, broken.reason) == (2, "entry 2 is missing: 3 follows 1")


def tamper(engine: Engine, statement: str, **values: Any) -> None:
    """Do what the owner of the database can: switch the triggers off."""
    if engine.dialect.name == "postgresql":
        off = ["ALTER TABLE audit_log DISABLE TRIGGER ALL"]
        statement = (
            statement.replace(":value", "CAST(:value AS json)") if "details" in statement else statement
        )
    else:
        off = ["DROP TRIGGER audit_log_no_update", "DROP TRIGGER audit_log_no_delete"]
    with engine.begin() as connection:
        for order in off:
            connection.execute(text(order))
        connection.execute(text(statement), values)


def test_many_writers_and_sealers_at_once_lose_nothing_and_do_not_wait_for_each_other(
    uow: UnitOfWork,
) -> None:
    """An open transaction that has noted something does not keep others from noting and sealing (on SQLite, from sealing)."""

    def write(worker: int) -> None:
        for number in range(20):
            note(uow, f"{worker}-{number}")
            if number % 5 == 0:
                seal(uow)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    while seal(uow):
        pass
    entries = log_of(uow)
    assert [entry.seq for entry in entries] == list(range(1, 161))
    assert {entry.subject for entry in entries} == {f"{w}-{n}" for w in range(8) for n in range(20)}
    assert check(uow).end() is None


def test_an_open_writer_holds_nobody_up(uow: UnitOfWork, engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer")
    with uow.write() as slow:
        slow.audit.note(AuditAction.KEY_CREATED, "slow")
        note(uow, "quick")
        assert seal(uow) == 1
    assert seal(uow) == 1
    assert [entry.subject for entry in log_of(uow)] == ["quick", "slow"]


def test_only_one_process_seals_at_a_time(uow: UnitOfWork, engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer")
    note(uow, "a")
    with uow.write() as first:
        assert first.audit.seal() == 1
        assert seal(uow) == 0, "it neither waits nor numbers anything twice"
    assert [entry.seq for entry in log_of(uow)] == [1]


def test_pages(uow: UnitOfWork) -> None:
    for number in range(5):
        with act_as(Acting(key_id="k1" if number % 2 else "k2")):
            note(uow, f"s{number}")
    seal(uow)
    with uow.read() as repos:
        page = repos.audit.page(limit=2)
        assert [entry.seq for entry in page.items] == [5, 4]
        page = repos.audit.page(limit=2, before=int(page.next_cursor or ""))
        assert [entry.seq for entry in page.items] == [3, 2]
        assert [entry.seq for entry in repos.audit.page(actor="k1").items] == [4, 2]
        assert [entry.seq for entry in repos.audit.page(subject="s2").items] == [3]
        assert repos.audit.page(action=AuditAction.REFUSED).items == ()


def test_an_empty_log(uow: UnitOfWork) -> None:
    with uow.read() as repos:
        assert repos.audit.head() == (0, START)
        assert repos.audit.is_sealed()
    assert check(uow).end() is None


OLD_SEC = 40 * 86400


def aged(uow: UnitOfWork, engine: Engine, *names: str) -> None:
    """Seal entries that are forty days old."""
    for name in names:
        note(uow, name)
    with engine.begin() as connection:
        connection.execute(text("UPDATE audit_inbox SET at = at - :sec"), {"sec": OLD_SEC})
    seal(uow)


def test_pruning_leaves_a_log_that_says_what_is_gone(uow: UnitOfWork, engine: Engine) -> None:
    aged(uow, engine, "a", "b", "c")
    note(uow, "young")
    seal(uow)
    before = log_of(uow)
    with uow.read() as repos:
        last = repos.audit.prunable(repos.now() - 30 * 86400, limit=100)
        assert repos.audit.prunable(repos.now() - 60 * 86400, limit=100) is None
        few = repos.audit.prunable(repos.now() - 30 * 86400, limit=2)
    assert last == before[2]
    assert few == before[1]
    with uow.write() as repos:
        assert repos.audit.prune(last.seq, last.hash) == 3
    young, statement = log_of(uow)
    assert (young, statement.action) == (before[3], AuditAction.AUDIT_PRUNED)
    assert statement.details == {
        "count": 3, "to": 3, "hash": last.hash, "since": before[0].at, "until": before[2].at,
    }  # fmt: skip
    chain = check(uow)
    assert (chain.end(), chain.pruned) == (None, 3)
    note(uow, "later")
    seal(uow)
    assert check(uow).end() is None


def test_nothing_is_pruned_by_a_wrong_hash_or_number(uow: UnitOfWork, engine: Engine) -> None:
    aged(uow, engine, "a", "b")
    before = log_of(uow)
    for seq, digest in ((1, before[1].hash), (9, before[1].hash)):
        with pytest.raises(ConflictError, match="no entry"), uow.write() as repos:
            repos.audit.prune(seq, digest)
    assert log_of(uow) == before


def test_the_database_lets_nothing_go_but_what_the_log_says(uow: UnitOfWork, engine: Engine) -> None:
    aged(uow, engine, "a", "b", "c", "d")
    second = log_of(uow)[1]
    with uow.write() as repos:
        repos.audit.prune(second.seq, second.hash)
    left = log_of(uow)
    for condition in ("seq = 3", "seq > 3", "action = 'audit-pruned'", "seq >= 0"):
        with pytest.raises(DBAPIError, match="only grows"), engine.begin() as connection:
            connection.execute(text(f"DELETE FROM audit_log WHERE {condition}"))
    with pytest.raises(DBAPIError, match="only grows"), engine.begin() as connection:
        connection.execute(text("UPDATE audit_log SET subject = 'x' WHERE seq = 3"))
    assert log_of(uow) == left


def test_what_is_missing_without_a_statement_is_named(uow: UnitOfWork, engine: Engine) -> None:
    aged(uow, engine, "a", "b", "c", "d")
    second = log_of(uow)[1]
    with uow.write() as repos:
        repos.audit.prune(second.seq, second.hash)
    tamper(engine, "DELETE FROM audit_log WHERE seq = 3")
    broken = check(uow).end()
    assert broken is not None
    assert (broken.seq, "up to entry 3" in broken.reason) == (1, True)
