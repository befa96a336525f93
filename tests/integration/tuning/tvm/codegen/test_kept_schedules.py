"""Scheduled kernels on disk: equal to what was scheduled, and scheduled again where the file does not serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tvm_ffi
from tvm import te, tirx

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen import kept_schedules
from tunefarm_tuning.tvm.codegen.kept_schedules import keep_default_schedules, kept_schedule
from tunefarm_tuning.tvm.codegen.kernel_objects import KernelObjects
from tunefarm_tuning.tvm.default_schedules import schedule
from tunefarm_tuning.tvm.default_schedules.schedule import NoDefaultSchedule
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, Packing, panel_order

HOST = parse_target("host")
RECORD = {"config": [0, [1, 2]], "space_key": "s"}


def scheduled() -> PackedKernel:
    given = te.placeholder((4, 32), "float32", name="given")
    func = te.create_prim_func([given, te.compute((4, 32), lambda i, j: given[i, j] + 1.0)])
    packing = Packing(shape=(4, 32), packed_shape=(2, 4, 16), dtype="float32", index_map=panel_order(2, 16))
    return PackedKernel(func=func.with_attr("tirx.is_scheduled", True), packings={0: packing})


def never() -> PackedKernel:
    raise AssertionError("it is kept")


def kept(
    folder: Path,
    by: Callable[[], PackedKernel],
    *,
    workload: str = "w",
    record: dict[str, object] = RECORD,
    target: str = "host",
) -> PackedKernel:
    return kept_schedule(folder, workload, dict(record), parse_target(target), by)


def test_a_kept_kernel_is_the_scheduled_one(tmp_path: Path) -> None:
    first = kept(tmp_path, scheduled)
    again = kept(tmp_path, never)
    assert tvm_ffi.structural_equal(again.func, first.func)
    assert isinstance(again.func, tirx.PrimFunc)
    assert again.packings.keys() == {0}
    assert again.packings[0].is_same_as(first.packings[0])


def test_another_workload_config_or_target_is_scheduled(tmp_path: Path) -> None:
    kept(tmp_path, scheduled)
    kept(tmp_path, scheduled, workload="other")
    kept(tmp_path, scheduled, record={**RECORD, "config": [0, [2, 1]]})
    kept(tmp_path, scheduled, target="llvm -mcpu=x86-64-v2")
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda _data: b"", lambda data: data.upper()])
def test_a_damaged_file_is_written_anew(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    kept(tmp_path, scheduled)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    kept(tmp_path, scheduled)
    assert path.read_bytes() == whole
    kept(tmp_path, never)


def test_what_cannot_be_scheduled_is_not_kept(tmp_path: Path) -> None:
    def fails() -> PackedKernel:
        raise InvalidInputError("no such space", code="space-changed")

    for _ in range(2):
        with pytest.raises(InvalidInputError):
            kept(tmp_path, fails)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def default_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has scheduled nothing yet, and forgets at the end where to."""
    monkeypatch.setattr(schedule, "_scheduled", {})
    monkeypatch.setattr(schedule, "_keeper", schedule._keeper)
    monkeypatch.setattr(kept_schedules, "_rules", lambda: "these rules")


def product() -> tirx.PrimFunc:
    left, right = (te.placeholder((64, 64), "float32", name=name) for name in ("left", "right"))
    axis = te.reduce_axis((0, 64), name="k")
    return te.create_prim_func(
        [left, right, te.compute((64, 64), lambda i, j: te.sum(left[i, axis] * right[j, axis], axis=axis))]
    )


@pytest.mark.usefixtures("default_schedules")
def test_another_process_takes_what_was_scheduled_by_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_default_schedules(tmp_path)
    first = schedule.default_schedule(product(), HOST)
    monkeypatch.setattr(schedule, "_scheduled", {})
    monkeypatch.setattr(schedule, "_schedule_by_rule", never_by_rule)
    again = schedule.default_schedule(product(), HOST)
    assert tvm_ffi.structural_equal(again, first)
    objects = KernelObjects(tmp_path)
    assert objects.object_of(again, HOST) == objects.object_of(first, HOST)


@pytest.mark.usefixtures("default_schedules")
def test_other_rules_schedule_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_default_schedules(tmp_path)
    schedule.default_schedule(product(), HOST)
    monkeypatch.setattr(schedule, "_scheduled", {})
    monkeypatch.setattr(kept_schedules, "_rules", lambda: "other rules")
    schedule.default_schedule(product(), HOST)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("default_schedules")
def test_what_no_rule_fits_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_default_schedules(tmp_path)
    monkeypatch.setattr(schedule, "_schedule_by_rule", no_rule)
    with pytest.raises(NoDefaultSchedule):
        schedule.default_schedule(product(), HOST)
    assert not list(tmp_path.iterdir())


def never_by_rule(_func: tirx.PrimFunc, _target: Target) -> tirx.PrimFunc:
    raise AssertionError("it is kept")


def no_rule(_func: tirx.PrimFunc, _target: Target) -> tirx.PrimFunc:
    raise NoDefaultSchedule("none")
