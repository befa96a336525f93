"""Downloads and refusals are counted, bounded and written; what the database cannot take now waits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from app_farm import farm_settings
from migrated_database import upgrade
from sqlalchemy import text

from tunefarm_app.access.audit import MAX_COUNTED, Auditor, check_log, seal
from tunefarm_app.runtime.composition import Services, compose
from tunefarm_db.acting import Acting
from tunefarm_db.values import AuditAction, AuditEntry
from tunefarm_tuning.core.errors import TransientError

STRANGER = Acting(via="api", address="192.0.2.1")


@pytest.fixture
def services(tmp_path: Path) -> Services:
    settings = farm_settings(tmp_path)
    upgrade(settings.database_url.get_secret_value())
    return compose(settings)


def log_of(services: Services) -> list[AuditEntry]:
    seal(services)
    with services.uow.read() as repos:
        return list(repos.audit.after(0, limit=1000))


def test_equal_downloads_are_one_entry(services: Services) -> None:
    auditor = Auditor(services)
    who = Acting(via="api", address="10.0.0.7", key_id="ab" * 8)
    for _ in range(3):
        auditor.count_download(who, "job_1", "artifact")
    auditor.count_download(who, "job_2", "artifact")
    auditor.write()
    auditor.write()
    several, single = log_of(services)
    assert (several.action, several.subject, several.actor) == (AuditAction.DOWNLOADED, "job_1", "ab" * 8)
    assert several.details == {"what": "artifact", "count": 3}
    assert single.details == {"what": "artifact"}


def test_an_attacker_cannot_fill_the_log(services: Services) -> None:
    auditor = Auditor(services)
    for number in range(10 * MAX_COUNTED):
        auditor.count_refusal(Acting(via="api", address=f"192.0.2.{number}"), "unauthenticated")
    auditor.write()
    entries = log_of(services)
    assert len(entries) == MAX_COUNTED + 1, "what an address tells is lost first"
    assert sum(entry.details.get("count", 1) for entry in entries) == 10 * MAX_COUNTED, "all are counted"
    last = entries[-1]
    assert (last.via, last.address) == ("api", "")
    assert last.details == {"what": "unauthenticated", "count": 9 * MAX_COUNTED}


def test_a_flood_hides_no_key_and_no_reason(services: Services) -> None:
    auditor = Auditor(services)
    for number in range(2 * MAX_COUNTED):
        auditor.count_refusal(Acting(via="api", address=f"192.0.2.{number}"), "unauthenticated")
    for number in range(2 * MAX_COUNTED):
        flooding = Acting(via="api", address=f"198.51.100.{number}", key_id="aa" * 8)
        auditor.count_refusal(flooding, "rate-limited")
    auditor.count_refusal(Acting(via="browser", address="203.0.113.9"), "sign-in")
    auditor.count_refusal(Acting(via="api", address="203.0.113.9", key_id="bb" * 8), "forbidden")
    auditor.write()
    told = {(entry.actor, entry.via, entry.details["what"]) for entry in log_of(services)}
    assert told == {
        (None, "api", "unauthenticated"),
        ("aa" * 8, "api", "rate-limited"),
        (None, "browser", "sign-in"),
        ("bb" * 8, "api", "forbidden"),
    }


def test_what_cannot_be_stored_holds_nothing_up(services: Services) -> None:
    with services.uow.engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TRIGGER refuses BEFORE INSERT ON audit_inbox WHEN NEW.subject = 'job_bad' "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        )
    auditor = Auditor(services)
    who = Acting(via="api", key_id="ab" * 8)
    for job in ("job_1", "job_bad", "job_2"):
        auditor.count_download(who, job, "records")
    auditor.write()
    assert [entry.subject for entry in log_of(services)] == ["job_1", "job_2"]
    auditor.write()
    assert len(log_of(services)) == 2, "each was written once"


def test_one_check_at_a_time(services: Services) -> None:
    """Of many at once, each is right or is told to wait; afterwards the next one may."""
    with services.uow.write() as repos:
        for number in range(2000):
            repos.audit.note(AuditAction.KEY_CREATED, f"key-{number}")
    auditor = Auditor(services)
    together = Barrier(4)

    def check() -> str:
        together.wait()
        try:
            return "right" if auditor.check().broken is None else "broken"
        except TransientError as error:
            return f"{error.code}, {error.fields['retry_after_sec']} s"

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: check(), range(4)))
    assert set(results) == {"right", "audit-check-running, 5 s"}
    assert auditor.check().seq == 2000


def test_refusals_are_written_at_once_then_once_a_minute(services: Services) -> None:
    auditor = Auditor(services)
    for _ in range(5):
        auditor.count_refusal(STRANGER, "unauthenticated")
        auditor.write(all_refusals=False)
    assert len(log_of(services)) == 1
    auditor.write(all_refusals=True)
    assert [entry.details.get("count", 1) for entry in log_of(services)] == [1, 4]


def test_what_the_database_cannot_take_now_waits(services: Services) -> None:
    auditor = Auditor(services)
    auditor.count_refusal(STRANGER, "unauthenticated")
    path = Path(str(services.uow.engine.url.database))
    services.uow.engine.dispose()
    path.rename(path.with_suffix(".away"))
    path.mkdir()
    with pytest.raises(TransientError):
        auditor.write()
    path.rmdir()
    path.with_suffix(".away").rename(path)
    auditor.write()
    assert [entry.details for entry in log_of(services)] == [{"what": "unauthenticated"}]


def test_the_thread_writes_and_seals(services: Services) -> None:
    auditor = Auditor(services, every_sec=0.01)
    auditor.start()
    auditor.count_refusal(STRANGER, "unauthenticated")
    auditor.count_refusal(STRANGER, "forbidden")
    auditor.stop()
    with services.uow.read() as repos:
        assert repos.audit.is_sealed()
        assert {entry.details["what"] for entry in repos.audit.after(0, limit=9)} == {
            "unauthenticated",
            "forbidden",
        }


def test_a_check_says_where_and_knows_a_noted_head(services: Services) -> None:
    for number in range(5):
        with services.uow.write() as repos:
            repos.audit.note(AuditAction.KEY_CREATED, f"key-{number}")
    whole = check_log(services)
    assert (whole.seq, whole.broken) == (5, None)
    head = (whole.seq, whole.hash)
    assert check_log(services, head).broken is None
    with services.uow.engine.begin() as connection:
        for trigger in ("audit_log_no_update", "audit_log_no_delete"):
            connection.execute(text(f"DROP TRIGGER {trigger}"))
        connection.execute(text("DELETE FROM audit_log WHERE seq = 5"))
    assert check_log(services).broken is None, "an end that was cut off looks like an end"
    cut = check_log(services, head).broken
    assert cut is not None
    assert cut.seq == 5
    with services.uow.engine.begin() as connection:
        connection.execute(text("UPDATE audit_log SET actor = 'somebody else' WHERE seq = 2"))
    changed = check_log(services)
    assert changed.broken is not None
    assert (changed.seq, changed.broken.seq) == (1, 2)
