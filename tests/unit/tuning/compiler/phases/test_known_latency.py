"""Latencies of an earlier compile: used if the tuned network takes as long as it did there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tunefarm_tuning.compiler.alternatives import SelectedAlternatives
from tunefarm_tuning.compiler.baselines import Baselines
from tunefarm_tuning.compiler.phases.build_model import BuiltModels
from tunefarm_tuning.compiler.phases.known_latency import LatencyCacheEntry
from tunefarm_tuning.compiler.phases.untuned import UntunedModel
from tunefarm_tuning.compiler.request import CompileRequest, Progress
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.latency import Disturbance, Latency
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.baselines.baseline import (
    Baseline,
    BaselineChild,
    BaselineFacts,
    BaselineNetwork,
)
from tunefarm_tuning.measure.baselines.runtimes import KINDS
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.interfaces import DeviceInfo
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.reference.random_inputs import InputKind
from tunefarm_tuning.reference.samples import SampleFeed
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model

TUNED = Path("tuned.so")
INPUTS = InputSet(kind=InputKind.NORMAL, inputs=Path("inputs.npz"), expected=Path("expected.npz"))
LATENCY = {
    name: Latency.of([sec] * 7, 1)
    for name, sec in {"tuned": 0.010, "untuned": 0.020, "onnxruntime": 0.018}.items()
}


class Device:
    """Stands in for a device on which the tuned network takes so long.

    Attributes:
        timed: The libraries that were timed.
    """

    def __init__(self, sec: float) -> None:
        self._sec = sec
        self.timed: set[str] = set()

    def call(self, method: str, params: dict[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        assert timeout_sec > 0
        if method == "yardstick_loop":
            return {"loop_sec": None}
        self.timed.add(params["path"])
        return {"samples_sec": [self._sec], "watched": None}


def request_of(folder: Path, findings: Findings) -> CompileRequest:
    return CompileRequest(
        model=Model(
            path=folder / "net.onnx", sha256="0" * 64, inputs=(), outputs=(), operators=(), opset=17, num_params=0
        ),
        target=Target(kind="llvm"),
        history=History((), findings),
        device=None,
        name="net",
        baseline=True,
        limits=CompileLimits(),
        seed=0,
        folder=folder,
        progress=Progress(lambda _phase, _done: None, Cancellation()),
        cancellation=Cancellation(),
    )  # fmt: skip


def built_of(config: Config) -> BuiltModels:
    record = TuningRecord(
        workload_key="a", target_key="t", device_model="d", toolchain="c", space_key="s", config=config,
        outcome=Outcome.OK, samples_sec=(1e-3,), build_sec=0.0, measured_at=0.0,
    )  # fmt: skip
    return BuiltModels(
        untuned=UntunedModel(library=Path("untuned.so"), unscheduled=False),
        tuned=TUNED,
        alternatives=SelectedAlternatives(library=TUNED),
        records={"a": record},
    )


def again(
    folder: Path,
    noted: Findings,
    device: Device,
    *,
    config: Config | None = None,
    input_set: InputSet = INPUTS,
    baseline: bool = True,
    baselines: Baselines = Baselines(),  # noqa: B008  (frozen)
    on: RemoteDevice | None = None,
    limits: CompileLimits | None = None,
) -> Any:
    """Ask a later compile for what the first one noted; return its answer and what it counts as reused."""
    later = Findings(noted.noted.get)
    request = replace(request_of(folder, later), device=on)
    network = LatencyCacheEntry(
        request=request if limits is None else replace(request, limits=limits),
        built=built_of(config or Config(0, ())),
        input_set=input_set,
        number=0,
        threads=1,
        baseline=baseline,
        baselines=baselines,
    )
    return network.known_latency(TUNED, cast("DeviceRun", device)), dict(later.reused)


@pytest.fixture
def noted(tmp_path: Path) -> Findings:
    findings = Findings()
    note(tmp_path, findings, LATENCY)
    return findings


def note(
    folder: Path, findings: Findings, latency: dict[str, Latency], baselines: Baselines | None = None
) -> None:
    LatencyCacheEntry(
        request=request_of(folder, findings),
        built=built_of(Config(0, ())),
        input_set=INPUTS,
        number=0,
        threads=1,
        baseline=True,
        baselines=Baselines() if baselines is None else baselines,
    ).note_latency(latency)


def test_the_same_network_as_fast_as_before_is_timed_alone(tmp_path: Path, noted: Findings) -> None:
    device = Device(0.0103)
    (latency, before, facts), reused = again(tmp_path, noted, device)
    assert latency == LATENCY
    assert facts == {}
    assert before.again_sec == 0.0103
    assert before.measured_at > 0
    assert device.timed == {str(TUNED)}
    assert reused == {"latency": 1}


@pytest.mark.parametrize("sec", [0.0112, 0.0088])
def test_a_network_that_takes_another_time_than_before_is_measured_again(
    tmp_path: Path, noted: Findings, sec: float
) -> None:
    assert again(tmp_path, noted, Device(sec)) == (None, {})


def test_another_network_is_not_known(tmp_path: Path, noted: Findings) -> None:
    device = Device(0.010)
    on_a_sample = replace(INPUTS, sample=SampleFeed(file=0, index=0, path=Path("sample.npz")), kind=None)
    assert again(tmp_path, noted, device, config=Config(0, (1,)))[0] is None
    assert again(tmp_path, noted, device, baseline=False)[0] is None
    assert again(tmp_path, noted, device, input_set=on_a_sample)[0] is None
    other = RemoteDevice(
        tracker_host="127.0.0.1",
        tracker_port=1,
        key="k",
        info=DeviceInfo(model=host_device_model(), num_cores=1, name="rack-2"),
    )
    assert again(tmp_path, noted, device, on=other)[0] is None, "another device of the same model"
    assert device.timed == set()


def test_what_others_disturbed_is_known_to_the_hurried_alone(tmp_path: Path) -> None:
    findings = Findings()
    disturbed = replace(LATENCY["untuned"], disturbance=Disturbance(blocks=15, slowdown=1.3))
    note(tmp_path, findings, {**LATENCY, "untuned": disturbed})
    assert again(tmp_path, findings, Device(0.010))[0] is None
    known, _ = again(tmp_path, findings, Device(0.010), limits=CompileLimits(ablation_sec=0.0))
    assert known is not None
    assert known[0]["untuned"].slowdown == 1.3


def baselines_of(version: str) -> Baselines:
    """Return OpenVINO of a version, which ran, and LiteRT, which did not."""
    baseline = Baseline(
        KINDS["openvino"], cast("BaselineNetwork", None), cast("BaselineChild", None), timeout_sec=1.0
    )
    baseline.facts = BaselineFacts(version=version, computes="float32", took_sec=4.0)
    return Baselines(
        names=("openvino", "litert"),
        running={"openvino": baseline},
        refused={"litert": "it is not here"},
        versions={"openvino": version},
    )


def test_other_runtimes_are_known_by_their_versions(tmp_path: Path) -> None:
    findings = Findings()
    latency = {**LATENCY, "openvino": LATENCY["untuned"]}
    note(tmp_path, findings, LATENCY, baselines_of("1"))
    assert findings.noted == {}, "OpenVINO failed"
    note(tmp_path, findings, latency, baselines_of("1"))
    (known, _, facts), _ = again(tmp_path, findings, Device(0.0103), baselines=baselines_of("1"))
    assert known == latency
    assert facts["openvino"] == BaselineFacts(version="1", computes="float32"), (
        "it took no time of this compile"
    )
    assert facts["litert"].missing == "it is not here"
    assert again(tmp_path, findings, Device(0.0103), baselines=baselines_of("2")) == (None, {})
    assert again(tmp_path, findings, Device(0.0103)) == (None, {}), "without them, it is another question"
    elsewhere = replace(baselines_of("1"), versions=None)
    assert again(tmp_path, findings, Device(0.0103), baselines=elsewhere) == (None, {})
