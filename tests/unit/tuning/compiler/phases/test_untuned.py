"""The untuned network: built at once, unless it was timed by the same records before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tunefarm_tuning.compiler.phases.untuned import build_unless_timed, note_timed, untuned_model
from tunefarm_tuning.compiler.request import CompileRequest, Progress
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession, KernelInfo, LoadedInfo
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.process import ChildCrashed
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision

TASK = KernelInfo(workload_key="task", names=("kernel",), weight=1, args=())
INFO = LoadedInfo(entries=(), tasks=(TASK,), not_tunable=(), cpu_features=())


def record_of(config: Config) -> TuningRecord:
    return TuningRecord(
        workload_key="task", target_key=Target(kind="llvm").key, device_model=host_device_model(),
        toolchain=toolchain_key(), space_key="space", config=config, outcome=Outcome.OK, samples_sec=(1e-3,),
        build_sec=0.0, measured_at=0.0,
    )  # fmt: skip


class Compiler:
    """Stands in for a compiler.

    Attributes:
        built: Of each network that it was asked for, whether with default schedules.
    """

    def __init__(self, *, crashes: int = 0) -> None:
        self._crashes = crashes
        self.built: list[bool] = []

    def build_model(self, path: Path, records: dict[str, Any], *, default_schedules: bool = True) -> None:
        assert path.name == "model-untuned.so"
        assert records == {}
        self.built.append(default_schedules)
        if len(self.built) <= self._crashes:
            raise ChildCrashed("it died")

    @property
    def session(self) -> CompileSession:
        return cast("CompileSession", self)


@pytest.fixture
def request_of_net(tmp_path: Path) -> CompileRequest:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"net")
    return CompileRequest(
        model=Model(
            path=path, sha256="0" * 64, inputs=(), outputs=(), operators=(), opset=17, num_params=0
        ),
        target=Target(kind="llvm"),
        history=History((), Findings()),
        device=None,
        name="net",
        baseline=True,
        limits=CompileLimits(),
        seed=0,
        folder=tmp_path,
        progress=Progress(lambda _phase, _done: None, Cancellation()),
        cancellation=Cancellation(),
    )  # fmt: skip


def test_it_is_built_once_and_only_when_needed_if_it_was_timed_before(request_of_net: CompileRequest) -> None:
    compiler = Compiler()
    untuned = build_unless_timed(request_of_net, compiler.session, lambda: INFO)
    assert compiler.built == [True]
    assert untuned.compiler is None
    note_timed(request_of_net, INFO)
    untuned = build_unless_timed(request_of_net, compiler.session, lambda: INFO)
    assert compiler.built == [True]
    assert untuned.compiler is compiler
    assert untuned.build() == untuned.build() == request_of_net.folder / "model-untuned.so"
    assert compiler.built == [True, True]
    assert untuned.compiler is None


@pytest.mark.parametrize(
    "change",
    [
        {"precision": Precision.BFLOAT16_WEIGHTS},
        {"seed": 1},
        {"baselines": ("openvino",)},
        {"baseline": False},
        {"samples": (Path("samples.npz"),)},
        {"target": Target(kind="cuda")},
    ],
    ids=str,
)
def test_it_is_built_at_once_where_other_things_were_timed(
    request_of_net: CompileRequest, change: dict[str, Any]
) -> None:
    note_timed(request_of_net, INFO)
    compiler = Compiler()
    build_unless_timed(replace(request_of_net, **change), compiler.session, lambda: INFO)
    assert compiler.built == [True]


def test_it_is_built_at_once_where_other_records_were_timed(request_of_net: CompileRequest) -> None:
    findings, compiler = request_of_net.history.findings, Compiler()
    requests = [
        replace(request_of_net, history=History((record_of(Config(number, ())),), findings))
        for number in range(2)
    ]
    note_timed(requests[0], INFO)
    build_unless_timed(requests[0], compiler.session, lambda: INFO)
    assert compiler.built == []
    for request in (requests[1], request_of_net):
        build_unless_timed(request, compiler.session, lambda: INFO)
    assert compiler.built == [True, True]


def test_a_large_network_does_not_keep_the_compiler(request_of_net: CompileRequest) -> None:
    with request_of_net.model.path.open("r+b") as file:
        file.truncate((64 << 20) + 1)
    note_timed(request_of_net, INFO)
    compiler = Compiler()
    build_unless_timed(request_of_net, compiler.session, lambda: INFO)
    assert compiler.built == [True]


def test_its_loops_are_unscheduled_if_the_compiler_dies_of_a_default_schedule(tmp_path: Path) -> None:
    compiler = Compiler(crashes=1)
    untuned = untuned_model(compiler.session, tmp_path)
    untuned.build()
    assert compiler.built == [True, False]
    assert untuned.unscheduled
    with pytest.raises(InvalidModelError):
        untuned_model(Compiler(crashes=2).session, tmp_path).build()
