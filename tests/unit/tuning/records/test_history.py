"""History: a record applies to its workload, target, device model and toolchain together."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import tuning_records

from tunefarm_tuning.core.errors import ConflictError, InvalidRecordError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.coverage import Coverage, CoveredTask, MissedTask, MissReason
from tunefarm_tuning.records.history import History, apply_history_best, current_history
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config

HERE = {"target_key": "llvm -mcpu=a", "device_model": "box", "toolchain": "tvm-1"}
RECORD = replace(tuning_records.RECORD, workload_key="w1", samples_sec=(2e-3, 1e-3, 3e-3), **HERE)


def test_the_best_record_of_equal_conditions_is_found() -> None:
    better = replace(RECORD, samples_sec=(1e-3,), config=Config(0, (2,)))
    elsewhere = [
        replace(RECORD, samples_sec=(1e-9,), target_key="cuda -arch=sm_90"),
        replace(RECORD, samples_sec=(1e-9,), device_model="other"),
        replace(RECORD, samples_sec=(1e-9,), toolchain="tvm-2"),
    ]
    history = History([*elsewhere, RECORD, better, RECORD])
    assert history.find("w1", **HERE) == (better, None, "")
    assert set(map(id, history.records)) == set(map(id, [*elsewhere, better]))


def test_of_several_spaces_each_has_its_best_and_the_newest_comes_first() -> None:
    older = replace(RECORD, samples_sec=(1e-9,), space_key="older", measured_at=RECORD.measured_at - 1.0)
    slower = replace(older, samples_sec=(1.0,), config=Config(0, (2,)))
    elsewhere = replace(older, space_key="elsewhere", device_model="tower")
    history = History([older, slower, RECORD, elsewhere])
    assert history.find("w1", **HERE) == (RECORD, None, "")
    assert history.others(RECORD) == [older]
    assert history.others(elsewhere) == []


@pytest.mark.parametrize(
    ("records", "reason", "explanation"),
    [
        ([], MissReason.NO_RECORD, ""),
        ([replace(RECORD, workload_key="w2")], MissReason.NO_RECORD, ""),
        (
            [replace(RECORD, outcome=Outcome.RUN_CRASH, samples_sec=())],
            MissReason.NO_RECORD,
            "every trial of it failed",
        ),
        ([replace(RECORD, target_key="llvm -mcpu=b")], MissReason.OTHER_TARGET, "'llvm -mcpu=b'"),
        ([replace(RECORD, device_model="tower")], MissReason.OTHER_DEVICE_MODEL, "'tower'; this is 'box'"),
        ([replace(RECORD, toolchain="tvm-2")], MissReason.OTHER_TOOLCHAIN, "'tvm-2'; this is 'tvm-1'"),
        (
            [replace(RECORD, toolchain="tvm-2"), replace(RECORD, target_key="c")],
            MissReason.OTHER_TOOLCHAIN,
            "'tvm-2'",
        ),
    ],
)
def test_a_miss_says_why(records: list[TuningRecord], reason: MissReason, explanation: str) -> None:
    record, why, message = History(records).find("w1", **HERE)
    assert record is None
    assert why is reason
    assert explanation in message


def test_the_innermost_block_counts_and_ends() -> None:
    assert current_history() is None
    with apply_history_best([RECORD]) as outer:
        assert current_history() is outer
        with apply_history_best([]) as inner:
            assert current_history() is inner
        assert current_history() is outer
        seen: list[History | None] = []
        thread = threading.Thread(target=lambda: seen.append(current_history()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert current_history() is None


def test_records_can_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(RECORD.to_json() + "\n", encoding="utf-8")
    for source in (path, str(path)):
        with apply_history_best(source) as history:
            assert history.records == (RECORD,)
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(InvalidRecordError), apply_history_best(path):
        pass
    assert current_history() is None


def test_coverage_is_there_after_a_compile() -> None:
    history = History([RECORD])
    with pytest.raises(ConflictError) as caught:
        _ = history.coverage
    assert caught.value.code == "no-coverage"
    history.coverage = Coverage(hits=(), misses=())
    assert history.coverage.hits == ()


def test_coverage_round_trips_and_reads_well() -> None:
    coverage = Coverage(
        hits=(CoveredTask(workload_key="w1", name="conv", weight=2, record_cost_sec=1e-3, tuned_sec=1e-3),),
        misses=(
            MissedTask(workload_key="w2", name="pool", weight=1, reason=MissReason.NO_RECORD),
            MissedTask(
                workload_key="w3",
                name="dense",
                weight=1,
                reason=MissReason.WRONG_ANSWER,
                message="arg2 is off",
            ),
        ),
    )
    assert Coverage.from_json(coverage.to_json()) == coverage
    assert [miss.name for miss in coverage.fallbacks] == ["dense"]
    assert str(coverage).splitlines() == [
        "1 of 3 tasks covered by history",
        "  missed pool (w2): no-record",
        "  missed dense (w3): wrong-answer, arg2 is off",
    ]
