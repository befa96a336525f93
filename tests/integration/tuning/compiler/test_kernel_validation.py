"""A tuned kernel that is wrong, crashes, hangs or is slow is left out, and the next one is unaffected."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tunefarm_tuning.compiler.kernel_validation import CheckedKernel, KernelValidator, missed
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession, KernelInfo
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.core.spans import recording
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.measure.kernel_timing import CALLS_ALONE
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.testing.bad_kernels import bad_kernel
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.records import TunedNet

LIMITS = CompileLimits(kernel_ratio=1e9)
HANG_SEC = 3.0  # after which a kernel of which the test knows that it hangs is given up


class HastyDevice(DeviceRun):
    """Times out early on chosen tuned kernels, and on nothing else, however slow the machine is.

    Attributes:
        compare_sec: None leaves it to the caller.
    """

    compare_sec: float | None = None

    def call(self, method: str, params: Mapping[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        hasty = method == "compare_kernel" and self.compare_sec is not None
        return super().call(method, params, timeout_sec=self.compare_sec or 0.0 if hasty else timeout_sec)

    @contextmanager
    def hurry(self, compare_sec: float | None) -> Iterator[None]:
        self.compare_sec = compare_sec
        try:
            yield
        finally:
            self.compare_sec = None


@dataclass(frozen=True, slots=True)
class Bench:
    """The network loaded, a device, and a way to check its first task with any library in its kernel's place."""

    net: TunedNet
    compiler: CompileSession
    device: HastyDevice
    tasks: tuple[KernelInfo, ...]
    folder: Path

    def check(
        self,
        substitute: Callable[[str, Path], Path] = lambda _name, path: path,
        *,
        limits: CompileLimits = LIMITS,
        config: Config | None = None,
    ) -> CheckedKernel:
        record = self.net.records[0]
        record = replace(record, config=config or record.config)
        check = KernelValidator(
            self.compiler, self.device, self.folder, seed=0, limits=limits, substitute=substitute
        )
        return check.check(self.tasks[0], record)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all files of the compile."""
    return tmp_path_factory.mktemp("compiler")


@pytest.fixture
def tmp_path(workshop: Path) -> Path:
    """A folder that the compile's children may read, as it is in theirs."""
    return Path(mkdtemp(dir=workshop))


@pytest.fixture(scope="module")
def compiler(tiny_net: TunedNet, workshop: Path) -> Iterator[CompileSession]:
    session = CompileSession(tiny_net.model, parse_target("host"), workshop, LIMITS)
    yield session
    session.close()


@pytest.fixture(scope="module")
def bench(tiny_net: TunedNet, compiler: CompileSession, workshop: Path) -> Iterator[Bench]:
    device = HastyDevice(None, kind="cpu", threads=1, limits=ChildLimits(), folder=workshop)
    folder = workshop / "kernels"
    folder.mkdir()
    yield Bench(tiny_net, compiler, device, compiler.load().tasks, folder)
    device.close()


def test_a_good_kernel_is_kept(bench: Bench) -> None:
    checked = bench.check()
    assert checked.miss is None
    assert checked.hit is not None
    assert checked.hit.tuned_sec
    assert checked.hit.untuned_sec
    assert all(comparison["ok"] for comparison in checked.evidence["comparisons"])
    assert list(bench.folder.iterdir()) == []


def test_what_passed_in_an_earlier_compile_is_not_built_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Findings()

    def validator(findings: Findings) -> KernelValidator:
        return KernelValidator(
            bench.compiler, bench.device, bench.folder, seed=0, limits=LIMITS, findings=findings.within()
        )

    task, record = bench.tasks[0], bench.net.records[0]
    checked = validator(first).check(task, record)
    kernel = CheckedKernel(
        task=bench.tasks[1], record=None, miss=missed(bench.tasks[1], MissReason.NO_RECORD)
    )
    timed = validator(first).time_untuned(kernel, timeout_sec=60.0)
    later = Findings(first.noted.get)
    monkeypatch.setattr(bench.compiler, "build_kernel", None)
    assert validator(later).check(task, record) == checked
    assert validator(later).time_untuned(kernel, timeout_sec=60.0) == timed
    assert later.reused == {"kernel": 1, "untuned": 1}


def test_what_failed_is_tried_again(bench: Bench, tmp_path: Path) -> None:
    findings = Findings()
    check = KernelValidator(
        bench.compiler,
        bench.device,
        bench.folder,
        seed=0,
        limits=LIMITS,
        findings=findings.within(),
        substitute=lambda _name, _path: tmp_path / "no-library.so",
    )
    assert check.check(bench.tasks[0], bench.net.records[0]).miss is not None
    assert findings.noted == {}


@pytest.mark.parametrize(
    ("tuned_sec", "untuned_sec", "remembered"),
    [
        ([2.0, 1.9, 2.1], [1.0, 1.1, 1.0], True),
        ([2.0, 1.06, 2.1], [1.0, 1.1, 1.0], False),  # it was as fast once: others may have slowed the rest
    ],
)
def test_only_a_kernel_that_is_slower_in_every_sample_is_remembered_as_slow(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tuned_sec: list[float],
    untuned_sec: list[float],
    remembered: bool,
) -> None:
    findings = Findings()
    limits = replace(LIMITS, kernel_ratio=1.05)

    def validator(known: Findings, ablation_sec: float = 60.0) -> KernelValidator:
        return KernelValidator(
            bench.compiler,
            bench.device,
            bench.folder,
            seed=0,
            limits=replace(limits, ablation_sec=ablation_sec),
            findings=known.within(),
        )

    call = bench.device.call

    def timed(method: str, params: Mapping[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        reply = call(method, params, timeout_sec=timeout_sec)
        times = {"tuned_sec": tuned_sec, "untuned_sec": untuned_sec}
        return {**reply, **times} if method == "compare_kernel" else reply

    monkeypatch.setattr(bench.device, "call", timed)
    task, record = bench.tasks[0], bench.net.records[0]
    checked = validator(findings).check(task, record)
    assert checked.miss is not None
    assert checked.miss.reason is MissReason.SLOWER_THAN_UNTUNED
    later = Findings(findings.noted.get)
    if not remembered:
        validator(later).check(task, record)
        assert later.reused == {}
    monkeypatch.setattr(bench.compiler, "build_kernel", None)
    assert validator(later, 60.0 if remembered else 0.0).check(task, record) == checked
    assert later.reused == {"slow-kernel": 1}


def test_a_kernel_without_a_record_is_timed_as_it_is(bench: Bench) -> None:
    check = KernelValidator(bench.compiler, bench.device, bench.folder, seed=0, limits=LIMITS)
    task = bench.tasks[1]
    kernel = CheckedKernel(task=task, record=None, miss=missed(task, MissReason.NO_RECORD))
    timed = check.time_untuned(kernel, timeout_sec=60.0)
    assert (timed.record, timed.miss) == (None, kernel.miss)
    assert timed.evidence["tuned_sec"] == []
    call_sec, *others = timed.evidence["untuned_sec"]
    assert len(others) == 2
    assert call_sec > 0
    odd = replace(kernel, task=replace(task, args=task.args[:1]))  # it does not run on so few
    assert check.time_untuned(odd, timeout_sec=60.0) == odd
    assert list(bench.folder.iterdir()) == []


@pytest.mark.parametrize("is_old", [False, True])
def test_an_untuned_kernel_is_timed_in_one_call_of_the_device(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """Only a device of a release before, which knows of one timing a call, is asked again."""
    check = KernelValidator(bench.compiler, bench.device, bench.folder, seed=0, limits=LIMITS)
    kernel = CheckedKernel(
        task=bench.tasks[0], record=None, miss=missed(bench.tasks[0], MissReason.NO_RECORD)
    )
    asked: list[str] = []
    call = bench.device.call

    def counted(method: str, params: Mapping[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        asked.append(method)
        reply = call(method, params, timeout_sec=timeout_sec)
        return {"call_sec": reply["call_sec"]} if is_old else reply

    monkeypatch.setattr(bench.device, "call", counted)
    timed = check.time_untuned(kernel, timeout_sec=60.0)
    assert len(timed.evidence["untuned_sec"]) == CALLS_ALONE
    assert asked == ["run_untuned"] * (CALLS_ALONE if is_old else 1)


def test_a_wrong_answer_is_noticed(bench: Bench, tmp_path: Path) -> None:
    other = CompileSession(bench.net.other_function, parse_target("host"), tmp_path, LIMITS)
    try:
        task = other.load().tasks[0]
        assert task.args == bench.tasks[0].args
        other.build_kernel(task.name, tmp_path / "wrong.so", None)
    finally:
        other.close()
    checked = bench.check(lambda _name, _path: tmp_path / "wrong.so")
    assert checked.hit is None
    assert checked.miss is not None
    assert checked.miss.reason is MissReason.WRONG_ANSWER
    assert "outside the tolerance" in checked.miss.message
    assert bench.check().hit is not None


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("idle", MissReason.WRONG_ANSWER),
        ("crash", MissReason.CRASHED),
        ("divide", MissReason.CRASHED),
        ("exit", MissReason.CRASHED),
        ("hang", MissReason.CRASHED),
        ("nothing", MissReason.CRASHED),
    ],
)
def test_a_bad_kernel_is_left_out_and_the_next_is_checked_as_ever(
    bench: Bench, tmp_path: Path, kind: str, reason: MissReason
) -> None:
    bad = bad_kernel(kind, tmp_path)
    with bench.device.hurry(HANG_SEC if kind == "hang" else None):
        checked = bench.check(lambda _name, _path: bad)
    assert checked.miss is not None
    assert checked.miss.reason is reason, checked.miss
    assert checked.miss.message
    assert bench.check().hit is not None


def test_a_slow_kernel_is_left_out(bench: Bench) -> None:
    checked = bench.check(limits=CompileLimits(kernel_ratio=0.0))
    assert checked.miss is not None
    assert checked.miss.reason is MissReason.SLOWER_THAN_UNTUNED
    assert checked.evidence["tuned_sec"]


def test_a_config_that_does_not_apply_is_left_out(bench: Bench) -> None:
    checked = bench.check(config=Config(99, ()))
    assert checked.miss is not None
    assert checked.miss.reason is MissReason.DOES_NOT_APPLY


def test_a_compiler_that_died_is_started_again(bench: Bench) -> None:
    bench.compiler._child.kill()
    assert bench.check().hit is not None


@pytest.mark.exhaustive
def test_over_rpc_too(compiler: CompileSession, tiny_net: TunedNet, tmp_path: Path) -> None:
    server = [
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}"),
        *("--work-dir", str(tmp_path / "server")),
    ]
    (tmp_path / "server").mkdir()
    (tmp_path / "kernels").mkdir()
    tasks = compiler.load().tasks
    with local_rpc(server_command=server) as farm:
        device = HastyDevice(farm.device, kind="cpu", threads=1, limits=ChildLimits(), folder=tmp_path)
        bench = Bench(tiny_net, compiler, device, tasks, tmp_path / "kernels")
        try:
            for kind, reason in (
                ("idle", MissReason.WRONG_ANSWER),
                ("crash", MissReason.CRASHED),
                ("hang", MissReason.CRASHED),
                ("nothing", MissReason.CRASHED),
            ):
                bad = bad_kernel(kind, tmp_path)
                with device.hurry(HANG_SEC if kind == "hang" else None):
                    checked = bench.check(lambda _name, _path, bad=bad: bad)
                assert checked.miss is not None
                assert checked.miss.reason is reason, checked.miss
                assert bench.check().hit is not None
        finally:
            device.close()


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("offers", [True, False], ids=["tunefarm's device", "TVM's own server"])
def test_kernels_are_compared_where_they_run(
    offers: bool, bench: Bench, compiler: CompileSession, tiny_net: TunedNet, tmp_path: Path
) -> None:
    """No array passes between the machines; a server without our functions gets them, as a device of an older release does."""
    server = (sys.executable, "-m", "tunefarm_workers.device.hardened_server", "--tracker", "{tracker}")
    server += ("--key", "{key}", "--work-dir", str(tmp_path))
    here = bench.check()
    with local_rpc(server_command=server if offers else None) as farm, recording() as log:
        device = HastyDevice(farm.device, kind="cpu", threads=1, limits=ChildLimits(), folder=tmp_path)
        try:
            there = Bench(tiny_net, compiler, device, bench.tasks, tmp_path).check()
        finally:
            device.close()
    assert there.hit is not None
    assert there.evidence["comparisons"] == here.evidence["comparisons"]
    assert len(there.evidence["tuned_sec"]) == len(here.evidence["tuned_sec"])
    names = [recorded.name for recorded in log.spans]
    assert "run: compare_kernel" in names
    assert ("run a kernel" in names) is not offers


def test_a_lost_device_is_not_the_kernels_fault(
    compiler: CompileSession, tiny_net: TunedNet, tmp_path: Path
) -> None:
    tasks = compiler.load().tasks
    with local_rpc() as farm:
        device = HastyDevice(
            farm.device,
            kind="cpu",
            threads=1,
            limits=ChildLimits(),
            folder=tmp_path,
            connect_timeout_sec=5.0,
        )
        bench = Bench(tiny_net, compiler, device, tasks, tmp_path)

        def lose(_name: str, path: Path) -> Path:
            farm.signal_server("SIGKILL")
            return path

        try:
            with pytest.raises(DeviceLostError):
                bench.check(lose)
        finally:
            device.close()


def test_what_fails_is_told_apart_from_what_is_not_there(tmp_path: Path) -> None:
    device = DeviceRun(None, kind="cpu", threads=1, limits=ChildLimits(), folder=tmp_path)
    try:
        with pytest.raises(RunFailed) as caught:
            device.call(
                "run_untuned",
                {"path": str(tmp_path / "missing.so"), "args": [], "seed": 0, "kind": "normal"},
                timeout_sec=60,
            )
        assert caught.value.code == "run-failed"
    finally:
        device.close()
