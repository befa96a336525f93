"""Findings, on both databases."""

from __future__ import annotations

from sqlalchemy import text

from tunefarm_db.unit_of_work import UnitOfWork


def test_findings_are_replaced_and_forgotten(uow: UnitOfWork) -> None:
    with uow.write() as repos:
        repos.findings.store({"a": {"x": 1}, "b": {"x": 2}})
        repos.findings.store({"a": {"x": 3}})
    with uow.read() as repos:
        finding = repos.findings.find("a", age_sec=100)
        assert finding is not None
        assert finding.value == {"x": 3}
        assert repos.findings.find("c", age_sec=100) is None
    with uow.write() as repos:
        repos._connection.execute(text("UPDATE findings SET created_at = created_at - 1000"))
        assert repos.findings.find("a", age_sec=100) is None
        repos.findings.store({"a": {"x": 4}})
        assert repos.findings.find("a", age_sec=100) is not None
        assert repos.findings.forget(500, limit=9) == 1
        assert repos.findings.forget(500, limit=9) == 0
        assert repos.findings.find("b", age_sec=10_000) is None
