"""Sources of kernels, and workloads by shape, on both databases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import SourceState, Workload

SHA256 = "ab" * 32


def test_the_life_of_a_source(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        (record_id,) = repos.records.add_many([new_record()])
        assert repos.sources.find("k") is None
        repos.sources.begin("k", record_id=record_id, target={"kind": "llvm"})
        repos.blobs.add(SHA256, size_bytes=9, media_type="x")
    with uow.write() as repos:
        begun = repos.sources.find("k")
        assert begun is not None
        assert (begun.state, begun.target, begun.record_id) == (
            SourceState.MAKING,
            {"kind": "llvm"},
            record_id,
        )
        assert not repos.blobs.is_referenced(SHA256)
        repos.sources.set_ready("k", sha256=SHA256, size_bytes=9)
        ready = repos.sources.find("k")
        assert ready is not None
        assert (ready.state, ready.sha256, ready.size_bytes) == (SourceState.READY, SHA256, 9)
        assert repos.blobs.is_referenced(SHA256)
        assert not repos.blobs.delete(SHA256)
    with uow.write() as repos:
        repos.sources.begin("k", record_id=record_id, target={"kind": "cuda"})
        again = repos.sources.find("k")
        assert again is not None
        assert (again.state, again.sha256, again.target) == (SourceState.MAKING, None, {"kind": "cuda"})
        repos.sources.set_failed("k", {"code": "no"})
        failed = repos.sources.find("k")
        assert failed is not None
        assert (failed.state, failed.error) == (SourceState.FAILED, {"code": "no"})
        assert repos.blobs.delete(SHA256)


def test_old_sources(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        (record_id,) = repos.records.add_many([new_record()])
        for key in ("failed", "making", "young"):
            repos.sources.begin(key, record_id=record_id, target={})
        for key in ("failed", "young"):
            repos.sources.set_failed(key, {})
        repos._connection.execute(
            text("UPDATE kernel_sources SET updated_at = updated_at - 1000 WHERE key != 'young'")
        )
    with uow.write() as repos:
        assert [source.key for source in repos.sources.older_than(500, limit=9)] == ["failed"]
        assert repos.sources.older_than(5000, limit=9) == ()
        repos.sources.delete("failed")
        assert repos.sources.older_than(500, limit=9) == ()


def test_workloads_by_shape(uow: UnitOfWork) -> None:
    def workload(key: str, name: str, *shapes: list[int]) -> Workload:
        args = [{"name": "x", "shape": shape, "dtype": "float32"} for shape in shapes]
        return Workload(key=key, toolchain="t", name=name, flops=1.0, args=args, ir="{}")

    with uow.write() as repos:
        repos.workloads.add_many(
            [
                workload("w1", "conv2d", [1, 56, 56, 64], [3, 3, 64, 64]),
                workload("w2", "conv2d_relu", [1, 156, 56, 641], []),
                workload("w3", "matmul", [64, 64]),
            ]
        )
    with uow.read() as repos:

        def like(text: str = "", *shape: int, limit: int = 9) -> tuple[str, ...]:
            return repos.searches.workloads_like(text, shape=shape, limit=limit)

        assert like() == ("w1", "w2", "w3")
        assert like("", 56, 56, 64) == ("w1",)
        assert like("", 56) == ("w1", "w2")
        assert like("", 64, 64) == ("w1", "w3")
        assert like("matmul", 64, 64) == ("w3",)
        assert like("", 64, 64, limit=1) == ("w1",)
        assert like("", 64, 3) == ()
        assert like("%") == ()
